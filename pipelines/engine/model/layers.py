"""The parts of encoder and decoder layers, built from a checkpoint in the precision of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.stack import AffineNorm
from pipelines.engine.model.linear import Linear, make_linear
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.checkpoint import Weights
from pipelines.engine.weights.quantized import QuantizedWeight
from pipelines.errors import CheckpointError
from pipelines.families.architecture import (
    Architecture,
    RelativePositions,
    RotaryPositions,
    Stack,
)


class LayerBuilder:
    """Builds layers of one side of a model: reads tensors and converts them to its precision.

    Args:
        weights: the checkpoint.
        stack: the side's architecture.
        side: its precision.
        source_side: the precision in which sources are projected to keys and values, the encoder's.
    """

    def __init__(
        self,
        weights: Weights,
        stack: Stack,
        side: StackPrecision,
        device: torch.device,
        source_side: StackPrecision | None = None,
    ) -> None:
        self.weights, self.stack, self.side, self.device = weights, stack, side, device
        self.source_side = source_side or side
        self._built: set[str] = set()

    def error(self, what: str) -> CheckpointError:
        """Return the error that the layers cannot be built."""
        return CheckpointError(f"{self.weights.folder}: {what}")

    def _build_once(self, name: str) -> None:
        """Raise CheckpointError if two layers, as of two blocks of one kind, have one name."""
        if name in self._built:
            raise self.error(
                f"two blocks of a layer read {name!r}; a layer can have one block of each kind"
            )
        self._built.add(name)

    def linear(
        self, names: Sequence[str], outputs: int, inputs: int, side: StackPrecision | None = None
    ) -> Linear:
        """One linear layer from one or several of the checkpoint, stacked along the outputs.

        A missing bias counts as zero.

        Args:
            names: of the checkpoint's layers.
            outputs, inputs: of each of them.
            side: instead of this side's precision.
        """
        for name in names:
            self._build_once(name)
        weight = self.weights.stacked([f"{name}.weight" for name in names], outputs, inputs)
        biases = [
            self.weights.take(f"{name}.bias", outputs)
            if f"{name}.bias" in self.weights
            else torch.zeros(outputs, dtype=weight.dtype)
            for name in names
        ]
        return make_linear(weight, torch.cat(biases), side or self.side, self.device)

    def norm(self, name: str) -> Norm:
        """A layer norm, or an RMS norm where the architecture has those."""
        self._build_once(name)
        d_model, norm = self.stack.d_model, self.stack.norm
        weight = self.tensor(f"{name}.weight", d_model)
        if norm.rms:
            return _RMSNorm(weight, norm.eps)
        bias = self.tensor(f"{name}.bias", d_model) if norm.bias else torch.zeros_like(weight)
        return LayerNorm(weight, bias, norm.eps)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape, in the dtype of the activations."""
        return self.weights.take(name, *shape).to(self.device, self.side.activation_dtype)

    def positions(self, name: str) -> Tensor:
        """Position embeddings [max_positions, d_model], read or computed."""
        stack = self.stack
        if stack.positions == "fairseq":
            table = _fairseq_sinusoids(stack.max_positions + stack.position_offset, stack.d_model)
            return table[stack.position_offset :].to(self.device, self.side.activation_dtype)
        if stack.positions not in ("table", "sinusoidal"):
            raise self.error(f"positions of the kind {stack.positions!r} are not computed here")
        if stack.positions == "table" or name in self.weights:
            rows = stack.max_positions + stack.position_offset
            return self.tensor(name, rows, stack.d_model)[stack.position_offset :]
        table = _sinusoids(stack.max_positions, stack.d_model)
        return table.to(self.device, self.side.activation_dtype)


def _sinusoids(length: int, d_model: int) -> Tensor:
    """Sines in the first half of each row, cosines in the second (Marian; Vaswani et al. 2017)."""
    rates = 10000.0 ** (-2.0 * torch.arange((d_model + 1) // 2, dtype=torch.float64) / d_model)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles[:, : d_model // 2].cos()], dim=1).float()


def _fairseq_sinusoids(length: int, d_model: int) -> Tensor:
    """The same with 1 / 10000 as the lowest rate, in float32 throughout, as fairseq does it."""
    half = d_model // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(length).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return F.pad(table, (0, d_model % 2))


class Embedding:
    """Token ids [...] → their embeddings [..., d_model], in the dtype of the activations.

    Beside int8 layers the table is int8, except for T5: its logits would be a third less accurate,
    so its table is float16. Embeddings are scaled after the lookup, so the table stays that of the
    checkpoint and both sides of a model can share it.
    """

    def __init__(self, build: LayerBuilder, name: str, rows: int) -> None:
        dtype, self._scale = build.side.weight_dtype, build.stack.embedding_scale
        if dtype == torch.int8 and isinstance(build.stack.attention_positions, RelativePositions):
            dtype = torch.float16
        table = build.weights.shared(name, rows, build.stack.d_model, build.device, dtype)
        self._dtype = build.side.activation_dtype
        self._scales: Tensor | None = None
        if isinstance(table, QuantizedWeight):
            self.table, self._scales = table.numbers, table.scales[:, None]
        else:
            self.table = table

    def __call__(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.table)
        x = (x if self._scales is None else x * F.embedding(ids, self._scales)).to(self._dtype)
        return x if self._scale == 1.0 else x * self._scale


class LayerNorm:
    """Layer norm over the last dimension."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self.affine = AffineNorm(weight, bias)
        self._weight, self._bias, self._shape, self._eps = weight, bias, weight.shape, eps

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self._shape, self._weight, self._bias, self._eps)


class _RMSNorm:
    """RMS norm over the last dimension (Zhang & Sennrich 2019)."""

    affine = None  # the compiled kernels have no RMS norm

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._shape, self._eps = weight, weight.shape, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self._shape, self._weight, self._eps)


Norm = LayerNorm | _RMSNorm


def affine_of(norm: Norm | None) -> AffineNorm | None:
    """Weight and bias of a layer norm; None for any other norm, and for none."""
    return None if norm is None else norm.affine


class RelativeBias:
    """The bias that T5's relative positions add to attention scores, by distance."""

    def __init__(self, build: LayerBuilder, name: str) -> None:
        relative, stack = build.stack.attention_positions, build.stack
        assert isinstance(relative, RelativePositions), "the stack has relative positions"
        table = build.tensor(name, relative.buckets, stack.heads)
        self._max_positions, self.device = stack.max_positions, build.device
        distances = torch.arange(1 - self._max_positions, self._max_positions)
        # [heads, distances], from far left to far right.
        self._values = table[_buckets(distances, relative).to(build.device)].T.contiguous()

    def __call__(self, positions: Tensor, keys: int, mask: Tensor | None) -> Tensor:
        """The bias for attention scores, with a mask added.

        Args:
            positions: [sequences, tokens], of the queries.
            keys: number of keys; their positions start at 0.
            mask: broadcasts to the result.

        Returns:
            [sequences, heads, tokens, keys].
        """
        distances = torch.arange(keys, device=positions.device) - positions[:, :, None]
        # Distances beyond the table are those of masked keys.
        index = (distances + (self._max_positions - 1)).clamp(0, 2 * self._max_positions - 2)
        bias = self._values[:, index].transpose(0, 1)
        return bias if mask is None else bias + mask


class StackInput:
    """What enters the layers of a side, "encoder" or "decoder": positions, and the norm on the
    embeddings."""

    def __init__(self, build: LayerBuilder, side: str) -> None:
        stack, name = build.stack, f"model.{side}"
        self._table = self._relative = self._rotary = self._norm = None
        positions = stack.attention_positions
        if isinstance(positions, RelativePositions):
            self._relative = RelativeBias(build, f"{name}.relative_bias.weight")
        elif isinstance(positions, RotaryPositions):
            dtype = build.side.activation_dtype
            self._rotary = RotaryTable(positions, stack.max_positions, build.device, dtype)
        elif positions is not None:
            kind = type(positions).__name__
            raise build.error(f"attention positions of the kind {kind} are not computed here")
        if stack.positions != "none":
            self._table = build.positions(f"{name}.embed_positions.weight")
        if stack.embedding_norm:
            self._norm = build.norm(f"{name}.layernorm_embedding")

    def __call__(self, x: Tensor, index: slice | Tensor | list[int]) -> Tensor:
        """Add positions to embeddings [..., length, d_model], and normalize; `index` is an index
        into a table."""
        x = x if self._table is None else x + self._table[index]
        return x if self._norm is None else self._norm(x)

    def rotation(self, index: slice | Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the cosines and sines of rotary positions; None if there are none."""
        return None if self._rotary is None else self._rotary.at(index)

    def mask(self, index: slice | Tensor, keys: int, mask: Tensor | None) -> Tensor | None:
        """Add the bias of relative positions to a mask of attention scores.

        Args:
            index: Positions of the queries: a slice, or [sequences, tokens].
            keys: The number of keys.
            mask: As RelativeBias takes it.
        """
        if self._relative is None:
            return mask
        if isinstance(index, slice):
            index = torch.arange(index.start or 0, index.stop, device=self._relative.device)[None]
        return self._relative(index, keys, mask)


def _buckets(distances: Tensor, relative: RelativePositions) -> Tensor:
    """T5's buckets of distances: exact for short ones, then logarithmic (Raffel et al. 2020)."""
    count, offset = relative.buckets, torch.zeros_like(distances)
    if relative.bidirectional:
        count //= 2
        offset = (distances > 0) * count
        far = distances.abs()
    else:
        far = (-distances).clamp_min(0)
    exact = count // 2
    # In float32, so that it rounds as in transformers.
    wide = torch.log(far.float().clamp_min(1) / exact) / math.log(relative.max_distance / exact)
    wide = (exact + (wide * (count - exact)).long()).clamp_max(count - 1)
    return offset + torch.where(far < exact, far, wide)


def embedding_name(weights: Weights, architecture: Architecture, side: str) -> str:
    """Return the name of a side's token embedding, shared or its own. side: "encoder", "decoder".

    A model whose head is not tied has tables of its own if its checkpoint has them, as in
    transformers 5; in those of transformers 4 they equal the shared one, or are left out.
    """
    own = f"model.{side}.embed_tokens.weight"
    has_own = architecture.tied_head is False and own in weights
    if architecture.separate_embeddings or has_own or "model.shared.weight" not in weights:
        return own
    return "model.shared.weight"


class RotaryTable:
    """Cosines and sines of the angles of all positions (Su et al. 2021)."""

    def __init__(
        self,
        rotary: RotaryPositions,
        max_positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        # In float32 throughout, so that the angles round as in transformers.
        exponents = torch.arange(0, rotary.dims, 2, dtype=torch.float32) / rotary.dims
        rates = 1.0 / rotary.theta**exponents
        angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * rates
        self._cosines = angles.cos().to(device, dtype)
        self._sines = angles.sin().to(device, dtype)

    def at(self, positions: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for `rotate`.

        Args:
            positions: of the tokens: a slice, or [sequences, tokens].

        Returns:
            Two tensors [tokens, 1, 1, dims / 2], or [sequences, tokens, 1, 1, dims / 2].
        """
        cosines, sines = self._cosines[positions], self._sines[positions]
        return cosines[..., None, None, :], sines[..., None, None, :]


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> None:
    """Rotate queries and keys in place: dimensions 2i and 2i + 1 as a pair.

    Args:
        x: [sequences, tokens, any, heads, head_dim]; dimensions beyond those of `rotation` stay.
        rotation: of the tokens' positions, from `RotaryTable.at`.
    """
    cosines, sines = rotation
    dims = 2 * cosines.shape[-1]
    even, odd = x[..., 0:dims:2], x[..., 1:dims:2]
    rotated = even * cosines - odd * sines, odd * cosines + even * sines
    even.copy_(rotated[0])
    odd.copy_(rotated[1])
