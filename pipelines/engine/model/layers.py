"""What encoder and decoder layers are made of, built from a checkpoint as a plan says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.model.checkpoint import Weights
from pipelines.engine.model.device import Side
from pipelines.engine.model.families import Activation, Architecture, Stack
from pipelines.engine.model.linear import Linear, make_linear

__all__ = ["Builder", "FeedForward", "Norm", "embedding_name"]

_NORM_EPS = 1e-5  # torch's default, which all families here were trained with
_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


class Builder:
    """Reads one side's tensors and lays them out as its plan says."""

    def __init__(self, weights: Weights, stack: Stack, side: Side, device: torch.device) -> None:
        self.weights, self.stack, self.side, self.device = weights, stack, side, device

    def linear(
        self, names: Sequence[str], out: int, inner: int, side: Side | None = None
    ) -> Linear:
        """One layer out of one or several stacked ones; a missing bias counts as zero."""
        weight = self.weights.stacked([f"{name}.weight" for name in names], out, inner)
        biases = [
            self.weights.take(f"{name}.bias", out)
            if f"{name}.bias" in self.weights
            else torch.zeros(out, dtype=weight.dtype)
            for name in names
        ]
        return make_linear(weight, torch.cat(biases), side or self.side, self.device)

    def norm(self, name: str) -> Norm:
        width = self.stack.d_model
        return Norm(self.tensor(f"{name}.weight", width), self.tensor(f"{name}.bias", width), width)

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self.weights.take(name, *shape).to(self.device, self.side.activations)

    def positions(self, name: str) -> Tensor:
        """[max_positions, d_model], in the activations' dtype."""
        stack = self.stack
        if stack.positions == "table" or name in self.weights:
            rows = stack.max_positions + stack.position_offset
            return self.tensor(name, rows, stack.d_model)[stack.position_offset :]
        table = _sinusoids(stack.max_positions, stack.d_model)
        return table.to(self.device, self.side.activations)


def _sinusoids(length: int, width: int) -> Tensor:
    """Sines in the first half of each row, cosines in the second (Marian; Vaswani et al. 2017)."""
    rates = 10000.0 ** (-2.0 * torch.arange((width + 1) // 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles[:, : width // 2].cos()], dim=1).float()


class Norm:
    def __init__(self, weight: Tensor, bias: Tensor, width: int) -> None:
        self._weight, self._bias, self._shape = weight, bias, (width,)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._shape, self._weight, self._bias, _NORM_EPS)


class FeedForward:
    def __init__(self, build: Builder, name: str) -> None:
        width, inner = build.stack.d_model, build.stack.ffn
        self._up = build.linear([f"{name}.fc1"], inner, width)
        self._down = build.linear([f"{name}.fc2"], width, inner)
        self._activation = _ACTIVATIONS[build.stack.activation]

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._activation(self._up(x)))


def embedding_name(weights: Weights, architecture: Architecture, side: str) -> str:
    """Where the token table lies: shared, or with its side of the model."""
    own = f"model.{side}.embed_tokens.weight"
    if architecture.separate_embeddings or "model.shared.weight" not in weights:
        return own
    return "model.shared.weight"
