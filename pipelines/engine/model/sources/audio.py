"""Log-mel frames, which enter through two convolutions that halve their number."""

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

_SHORT_FRAMES = 64


class AudioSource(Source):
    """Log-mel arrays or tensors [mels, frames]."""

    is_sound = True
    is_long = True

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Tensor]:
        mels, longest = self._architecture.num_mel_bins, self._frames
        tensors = [torch.as_tensor(source, dtype=torch.float32) for source in sources]
        for tensor in tensors:
            rows, frames = tensor.shape if tensor.ndim == 2 else (0, 0)
            if rows != mels or not 0 < frames <= longest or frames % 2:
                raise RequestError(
                    f"audio of shape {list(tensor.shape)}: this model takes "
                    f"[{mels} mels, up to {longest} frames, an even number]"
                )
            if tensor.shape != tensors[0].shape and not any_shapes:
                raise RequestError("sources encoded together must have the same number of frames")
            check_finite(tensor, "audio features hold")
        return tensors

    def example(self, *, short: bool = False) -> Tensor:
        frames = min(_SHORT_FRAMES, self._frames) if short else self._frames
        generator = torch.Generator().manual_seed(0)
        return torch.randn(self._architecture.num_mel_bins, frames, generator=generator)

    def stem(self, build: LayerBuilder) -> Stem:
        return _Convolutions(build, self._architecture.num_mel_bins)

    @property
    def _frames(self) -> int:
        return 2 * self._architecture.max_source_positions


class _Convolutions:
    """Two convolutions of width 3, the second one with a stride of 2."""

    def __init__(self, build: LayerBuilder, mels: int) -> None:
        name, d_model = "model.encoder", build.stack.d_model
        self._layers = [
            (build.tensor(f"{name}.conv{i}.weight", d_model, inputs, 3),
             build.tensor(f"{name}.conv{i}.bias", d_model))
            for i, inputs in ((1, mels), (2, d_model))
        ]  # fmt: skip

    def encode(
        self, layers: EncoderLayers, sources: Sequence[Tensor], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        weight, _ = self._layers[0]
        x = torch.stack([*sources]).to(weight.device, weight.dtype)
        for stride, (weight, bias) in enumerate(self._layers, start=1):
            x = F.gelu(F.conv1d(x, weight, bias, stride=stride, padding=1))
        return layers.run_each(x.transpose(1, 2).unbind(), threads)
