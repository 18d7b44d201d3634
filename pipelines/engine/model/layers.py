"""What encoder and decoder layers are made of, built from a checkpoint as a plan says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.stack import AffineNorm
from pipelines.engine.model.linear import Linear, make_linear
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.architecture import Activation, Architecture, RelativePositions, Stack
from pipelines.engine.weights.checkpoint import Weights
from pipelines.engine.weights.quantised import QuantisedWeight

__all__ = [
    "LayerBuilder",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "Norm",
    "RelativeBias",
    "affine_of",
    "embedding_name",
]

_FEW_ROWS = 8_192

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def _gelu_beside_int8(x: Tensor) -> Tensor:
    """GELU beside int8 weights. For a few rows by its tanh form, which differs by at most 5e-4: the
    exact one goes through oneDNN, which takes 10 to 40 µs to call, a tenth of a small model's
    step."""
    return F.gelu(x, approximate="tanh" if x.is_cpu and x.numel() <= _FEW_ROWS else "none")


class LayerBuilder:
    """Reads one side's tensors and lays them out as its plan says."""

    def __init__(
        self, weights: Weights, stack: Stack, side: StackPrecision, device: torch.device
    ) -> None:
        self.weights, self.stack, self.side, self.device = weights, stack, side, device

    def linear(
        self, names: Sequence[str], out: int, inner: int, side: StackPrecision | None = None
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
        width, eps = self.stack.d_model, self.stack.norm_eps
        weight = self.tensor(f"{name}.weight", width)
        if self.stack.rms:
            return _RMSNorm(weight, eps)
        return LayerNorm(weight, self.tensor(f"{name}.bias", width), eps)

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self.weights.take(name, *shape).to(self.device, self.side.activations)

    def positions(self, name: str) -> Tensor:
        """[max_positions, d_model], in the activations' dtype."""
        stack = self.stack
        if stack.positions == "fairseq":
            table = _fairseq_sinusoids(stack.max_positions + stack.position_offset, stack.d_model)
            return table[stack.position_offset :].to(self.device, self.side.activations)
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


def _fairseq_sinusoids(length: int, width: int) -> Tensor:
    """The same with the slowest wave at 1 / 10000, in float32 throughout, as fairseq has it."""
    half = width // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(length).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return F.pad(table, (0, width % 2))


class Embedding:
    """Token ids of any shape → their rows of the table, in the activations' dtype.

    Beside int8 layers the table is int8, too; T5's is float16, for its logits would be a third
    further off. Scaled when they have been looked up: so the table is that of the checkpoint, and
    where both sides have it in common, it is there once.
    """

    def __init__(self, build: LayerBuilder, name: str, rows: int) -> None:
        dtype, self._scale = build.side.weights, build.stack.embedding_scale
        if dtype == torch.int8 and build.stack.relative is not None:
            dtype = torch.float16
        table = build.weights.shared(name, rows, build.stack.d_model, build.device, dtype)
        self._dtype = build.side.activations
        self._steps: Tensor | None = None
        if isinstance(table, QuantisedWeight):
            self.table, self._steps = table.numbers, table.scales[:, None]
        else:
            self.table = table

    def __call__(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.table)
        x = (x if self._steps is None else x * F.embedding(ids, self._steps)).to(self._dtype)
        return x if self._scale == 1.0 else x * self._scale


class LayerNorm:
    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self.affine = AffineNorm(weight, bias)
        self._weight, self._bias, self._shape, self._eps = weight, bias, weight.shape, eps

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self._shape, self._weight, self._bias, self._eps)


class _RMSNorm:
    affine = None  # the compiled kernels have no RMS norm

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._shape, self._eps = weight, weight.shape, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self._shape, self._weight, self._eps)


Norm = LayerNorm | _RMSNorm


def affine_of(norm: Norm | None) -> AffineNorm | None:
    """Weight and bias of a layer norm; None for any other norm, and for none."""
    return None if norm is None else norm.affine


class FeedForward:
    def __init__(self, build: LayerBuilder, name: str) -> None:
        width, inner, self._gated = build.stack.d_model, build.stack.ffn, build.stack.gated
        # The activated half first.
        halves = [f"{name}.gate", f"{name}.value"] if self._gated else [f"{name}.fc1"]
        self._up = build.linear(halves, inner, width)
        self._down = build.linear([f"{name}.fc2"], width, inner)
        self._activation = _ACTIVATIONS[build.stack.activation]
        if build.stack.activation == "gelu" and build.side.kernel == "int8":
            self._activation = _gelu_beside_int8

    @property
    def products(self) -> tuple[Linear, ...]:
        """The two of them."""
        return self._up, self._down

    def __call__(self, x: Tensor) -> Tensor:
        if self._gated:
            gate, value = self._up(x).chunk(2, dim=-1)
            return self._down(self._activation(gate) * value)
        return self._down(self._activation(self._up(x)))


class RelativeBias:
    """Relative positions (T5): what is added to attention scores for each distance."""

    def __init__(self, build: LayerBuilder, name: str) -> None:
        relative, stack = build.stack.relative, build.stack
        assert relative is not None, "the stack has relative positions"
        table = build.tensor(name, relative.buckets, stack.heads)
        self._reach = stack.max_positions
        distances = torch.arange(1 - self._reach, self._reach)
        # [heads, distances], from far left to far right.
        self._values = table[_buckets(distances, relative).to(build.device)].T.contiguous()

    def __call__(self, positions: Tensor, keys: int, mask: Tensor | None) -> Tensor:
        """positions [rows, tokens] of the queries, keys from 0 on → [rows, heads, tokens, keys],
        with the mask of that shape, or one that broadcasts to it, added."""
        distances = torch.arange(keys, device=positions.device) - positions[:, :, None]
        # Beyond the reach lies only what is masked.
        places = (distances + (self._reach - 1)).clamp(0, 2 * self._reach - 2)
        bias = self._values[:, places].transpose(0, 1)
        return bias if mask is None else bias + mask


def _buckets(distances: Tensor, relative: RelativePositions) -> Tensor:
    """T5's buckets: one for each small distance, and ever wider ones (Raffel et al. 2020)."""
    count, found = relative.buckets, torch.zeros_like(distances)
    if relative.bidirectional:
        count //= 2
        found = (distances > 0) * count
        far = distances.abs()
    else:
        far = (-distances).clamp_min(0)
    exact = count // 2
    # As transformers rounds it, in float32.
    wide = torch.log(far.float().clamp_min(1) / exact) / math.log(relative.max_distance / exact)
    wide = (exact + (wide * (count - exact)).long()).clamp_max(count - 1)
    return found + torch.where(far < exact, far, wide)


def embedding_name(weights: Weights, architecture: Architecture, side: str) -> str:
    """Where the token table lies: shared, or with its side of the model."""
    own = f"model.{side}.embed_tokens.weight"
    if architecture.separate_embeddings or "model.shared.weight" not in weights:
        return own
    return "model.shared.weight"
