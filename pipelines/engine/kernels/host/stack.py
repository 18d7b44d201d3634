"""What decoders and encoders have in common that are one call of a kernel."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.host.linear import CompiledLinear, ThreadScratch, aligned_bytes
from pipelines.engine.kernels.loader import KernelLibrary, load_kernels
from pipelines.engine.weights.architecture import Stack

__all__ = ["AffineNorm", "CompiledLayer", "CompiledStack"]


@dataclass(frozen=True, eq=False)
class AffineNorm:
    """Weight and bias of a layer norm, both float32 [d_model]."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class CompiledLayer:
    """What a kernel reads of one layer: products in the order of layout's, and the norms of its
    parts."""

    products: tuple[CompiledLinear, ...]
    norms: tuple[AffineNorm, ...]

    @classmethod
    def of(
        cls, products: Sequence[object], norms: Sequence[AffineNorm | None]
    ) -> CompiledLayer | None:
        """None where the kernels lack one of them."""
        known = tuple(op for op in products if isinstance(op, CompiledLinear))
        affine = tuple(norm for norm in norms if norm is not None)
        whole = len(known) == len(products) and len(affine) == len(norms)
        return cls(known, affine) if whole else None


class CompiledStack:
    """All layers of one side of a model. Not thread-safe: a pass uses buffers that are kept for the
    next."""

    def __init__(
        self,
        stack: Stack,
        blocks: Sequence[CompiledLayer],
        final: AffineNorm | None,
        library: KernelLibrary,
    ) -> None:
        self._stack, self._layers, self._library = stack, len(blocks), library
        self._program = np.concatenate([op.op for block in blocks for op in block.products])
        # Before a block lies its own norm, or that which ends the block before it.
        norms: list[AffineNorm | None] = [norm for block in blocks for norm in block.norms]
        norms = [*norms, final] if stack.norm_first else [None, *norms]
        self._norms = np.array(
            [[norm.weight.data_ptr(), norm.bias.data_ptr()] if norm else [0, 0] for norm in norms],
            dtype=np.int64,
        )
        self._kept = blocks, norms  # the tables say where their numbers lie
        self._padded = max(op.padded for block in blocks for op in block.products)
        table = self._table = np.zeros(at.STEP, dtype=np.int64)
        table[at.LAYERS], table[at.WIDTH], table[at.FFN] = self._layers, stack.d_model, stack.ffn
        table[at.HEADS], table[at.HEAD_DIM] = stack.heads, stack.head_dim
        table[at.NORM_FIRST] = stack.norm_first
        table[at.ACTIVATION] = at.ACTIVATIONS.index(stack.activation)
        table[at.SCALE] = _float64_bits(stack.head_dim**-0.5 if stack.scaled else 1.0)
        table[at.EPSILON], table[at.LARGEST] = _float64_bits(stack.norm_eps), library.largest
        table[at.PROGRAM], table[at.NORMS] = self._program.ctypes.data, self._norms.ctypes.data
        self._buffers: dict[int, Tensor] = {}
        self._room: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, stack: Stack, blocks: Sequence[CompiledLayer | None], final: AffineNorm | None = None
    ) -> Self | None:
        """None where there are no kernels for these layers."""
        known, kernels = [block for block in blocks if block is not None], load_kernels()
        other = stack.relative is not None or stack.rms or stack.gated
        if kernels is None or len(known) < len(blocks) or other:
            return None
        return cls(stack, known, final, kernels)

    @property
    def level(self) -> str:
        """The instructions that its kernels were compiled for."""
        return self._library.level

    def _reserve(self, rows: int, places: int, numbers: Mapping[int, int]) -> None:
        """Buffers for so many rows, places that are looked at at once, and so many numbers a row in
        fields of the table."""
        wanted = (torch.get_num_threads(), rows, places, *numbers.values())
        room = self._room or (0,) * len(wanted)
        if all(need <= have for need, have in zip(wanted, room, strict=True)):
            return
        threads, rows, places, *widths = self._room = tuple(map(max, wanted, room))
        self._scratch = ThreadScratch(
            threads, max(self._stack.d_model, self._stack.head_dim + places)
        )
        self._buffers = {
            at.QUANTISED: aligned_bytes(rows * self._padded),
            at.RANGES: torch.empty(rows, 2),
        }
        for field, width in zip(numbers, widths, strict=True):
            self._buffers[field] = torch.empty(rows, width)
        self._scratch.tell(self._table)
        for place, buffer in self._buffers.items():
            self._table[place] = buffer.data_ptr()


def _float64_bits(number: float) -> int:
    """Those of a float64, as an integer."""
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits
