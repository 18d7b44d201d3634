"""Raw sound at 16 kHz, through three convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.model.layers import LayerBuilder
from pipelines.engine.model.sources.base import (
    EncoderLayers,
    Source,
    SourceSpan,
    Stem,
    check_finite,
)
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import RequestError
from pipelines.families.architecture import WAVEFORM_CONVOLUTIONS, waveform_positions

_SAMPLES, _SHORT_SAMPLES = 5 * 16_000, 8_000


class WaveformSource(Source):
    """Samples [n] at 16 kHz, of any length that gives the encoder a state."""

    is_sound = True

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Tensor]:
        return [self._checked(source) for source in sources]

    def _checked(self, source: Any) -> Tensor:
        samples = torch.as_tensor(source, dtype=torch.float32)
        longest = self._architecture.max_source_positions
        positions = waveform_positions(len(samples)) if samples.ndim == 1 else 0
        if not 0 < positions <= longest:
            raise RequestError(
                f"sound of shape {list(samples.shape)}: this model takes [samples] at 16 kHz, "
                f"enough for 1 to {longest} states of 24 ms"
            )
        check_finite(samples, "the sound holds")
        return samples

    def example(self, *, short: bool = False) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(_SHORT_SAMPLES if short else _SAMPLES, generator=generator) * 0.1

    def stem(self, build: LayerBuilder) -> Stem:
        return _Convolutions(build)


class _Convolutions:
    """Three convolutions, 24 ms a state, with a norm over the whole sound after the first
    (Jeffries et al. 2024).

    They are float32 in all compute types: 8 bits of a sample would be audible noise, and they are
    a small part of the work. Because of the norm, padding would change every state, so that each
    sound is computed alone.
    """

    def __init__(self, build: LayerBuilder) -> None:
        def tensor(name: str, *shape: int) -> Tensor:
            weight = build.weights.take(f"model.encoder.{name}", *shape)
            return weight.to(build.device, torch.float32)

        d_model = build.stack.d_model
        (first, _), (second, _), (third, _) = WAVEFORM_CONVOLUTIONS
        self._first = tensor("conv1.weight", d_model, 1, first)
        self._norm = tensor("groupnorm.weight", d_model), tensor("groupnorm.bias", d_model)
        self._second = (
            tensor("conv2.weight", 2 * d_model, d_model, second),
            tensor("conv2.bias", 2 * d_model),
        )
        self._third = (
            tensor("conv3.weight", d_model, 2 * d_model, third),
            tensor("conv3.bias", d_model),
        )

    def encode(
        self, layers: EncoderLayers, sources: Sequence[Tensor], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        return layers.run_each([self._states(each).to(layers.dtype) for each in sources], threads)

    def _states(self, samples: Tensor) -> Tensor:
        """Samples [n] → float32 [positions, d_model]."""
        x = samples.to(self._first.device, torch.float32)[None, None]
        first, second, third = (stride for _, stride in WAVEFORM_CONVOLUTIONS)
        x = torch.tanh(F.conv1d(x, self._first, stride=first))
        x = F.group_norm(x, 1, *self._norm)
        x = F.gelu(F.conv1d(x, *self._second, stride=second))
        x = F.gelu(F.conv1d(x, *self._third, stride=third))
        return x[0].T
