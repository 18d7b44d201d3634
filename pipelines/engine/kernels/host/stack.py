"""What the compiled decoder and encoder share: all layers of a stack in one kernel call."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi
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
    """The weights of one layer, as a kernel reads them.

    Attributes:
        linears: linear layers, in the order of `abi`.
        norms: one per block of the layer.
    """

    linears: tuple[CompiledLinear, ...]
    norms: tuple[AffineNorm, ...]

    @classmethod
    def of(
        cls, linears: Sequence[object], norms: Sequence[AffineNorm | None]
    ) -> CompiledLayer | None:
        """A layer of these parts; None unless the kernels support all of them."""
        compiled = tuple(op for op in linears if isinstance(op, CompiledLinear))
        affine = tuple(norm for norm in norms if norm is not None)
        supported = len(compiled) == len(linears) and len(affine) == len(norms)
        return cls(compiled, affine) if supported else None


class CompiledStack:
    """All layers of one side of a model. Not thread-safe: its buffers are reused by every pass.

    A kernel reads one table of int64: sizes, and addresses of weights, buffers, inputs and outputs
    (see `abi`). The constructor fills in what never changes, a pass the rest.

    Args:
        layers: the layers' weights.
        final: the norm after the last layer, if there is one.
    """

    def __init__(
        self,
        stack: Stack,
        layers: Sequence[CompiledLayer],
        final: AffineNorm | None,
        library: KernelLibrary,
    ) -> None:
        self._stack, self._layers, self._library = stack, len(layers), library
        self._program = np.concatenate([op.op for layer in layers for op in layer.linears])
        # In the order of use: the norm before each block is its own (pre-norm), or the norm that
        # ends the block before it (post-norm).
        norms: list[AffineNorm | None] = [norm for layer in layers for norm in layer.norms]
        norms = [*norms, final] if stack.norm_first else [None, *norms]
        self._norms = np.array(
            [[norm.weight.data_ptr(), norm.bias.data_ptr()] if norm else [0, 0] for norm in norms],
            dtype=np.int64,
        )
        self._weights = layers, norms  # kept alive: the tables hold their addresses
        self._padded = max(op.padded for layer in layers for op in layer.linears)
        table = self._table = np.zeros(abi.STEP, dtype=np.int64)
        table[abi.LAYERS], table[abi.WIDTH], table[abi.FFN] = (
            self._layers,
            stack.d_model,
            stack.ffn_dim,
        )
        table[abi.HEADS], table[abi.HEAD_DIM] = stack.heads, stack.head_dim
        table[abi.NORM_FIRST] = stack.norm_first
        table[abi.ACTIVATION] = abi.ACTIVATIONS.index(stack.activation)
        table[abi.SCALE] = _float64_bits(stack.head_dim**-0.5 if stack.scaled else 1.0)
        table[abi.EPSILON], table[abi.LARGEST] = _float64_bits(stack.norm_eps), library.largest
        table[abi.PROGRAM], table[abi.NORMS] = self._program.ctypes.data, self._norms.ctypes.data
        self._buffers: dict[int, Tensor] = {}
        self._reserved: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, stack: Stack, layers: Sequence[CompiledLayer | None], final: AffineNorm | None = None
    ) -> Self | None:
        """A compiled stack of these layers; None unless the kernels support all of them."""
        compiled, kernels = [layer for layer in layers if layer is not None], load_kernels()
        unsupported = stack.relative is not None or stack.rms or stack.gated
        if kernels is None or len(compiled) < len(layers) or unsupported:
            return None
        return cls(stack, compiled, final, kernels)

    @property
    def level(self) -> str:
        """The instruction set that the kernels were compiled for."""
        return self._library.level

    def _reserve(self, rows: int, positions: int, widths: Mapping[int, int]) -> None:
        """Make the buffers large enough for a pass.

        Args:
            rows: of all activations.
            positions: key positions that attention scores at once.
            widths: float32 numbers per row of further buffers, by the table field that holds
                their address.
        """
        needed = (torch.get_num_threads(), rows, positions, *widths.values())
        reserved = self._reserved or (0,) * len(needed)
        if all(need <= have for need, have in zip(needed, reserved, strict=True)):
            return
        threads, rows, positions, *sizes = self._reserved = tuple(map(max, needed, reserved))
        self._scratch = ThreadScratch(
            threads, max(self._stack.d_model, self._stack.head_dim + positions)
        )
        self._buffers = {
            abi.QUANTIZED: aligned_bytes(rows * self._padded),
            abi.RANGES: torch.empty(rows, 2),
        }
        for field, width in zip(widths, sizes, strict=True):
            self._buffers[field] = torch.empty(rows, width)
        self._scratch.write_to(self._table)
        for field, buffer in self._buffers.items():
            self._table[field] = buffer.data_ptr()


def _float64_bits(number: float) -> int:
    """The bits of a float64 as an int64."""
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits
