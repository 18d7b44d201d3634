"""The convolutions that raw sound enters an encoder through (Moonshine; Jeffries et al. 2024)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.weights.checkpoint import Weights
from pipelines.families.architecture import WAVEFORM_CONVOLUTIONS

__all__ = ["WaveformStem"]


class WaveformStem:
    """Three convolutions, 24 ms a state, with a norm over the whole sound after the first.

    They are float32 in all compute types: 8 bits of a sample would be audible noise, and they are
    a small part of the work. Because of the norm, padding would change every state, so that each
    sound is computed alone.

    Args:
        weights: the checkpoint.
        d_model: width of the states.
    """

    def __init__(self, weights: Weights, d_model: int, device: torch.device) -> None:
        def tensor(name: str, *shape: int) -> Tensor:
            return weights.take(f"model.encoder.{name}", *shape).to(device, torch.float32)

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
        self._strides = [stride for _, stride in WAVEFORM_CONVOLUTIONS]
        self._device = device

    def __call__(self, samples: Tensor) -> Tensor:
        """Samples [n] → float32 [positions, d_model]."""
        x = samples.to(self._device, torch.float32)[None, None]
        first, second, third = self._strides
        x = torch.tanh(F.conv1d(x, self._first, stride=first))
        x = F.group_norm(x, 1, *self._norm)
        x = F.gelu(F.conv1d(x, *self._second, stride=second))
        x = F.gelu(F.conv1d(x, *self._third, stride=third))
        return x[0].T
