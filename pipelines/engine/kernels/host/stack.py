"""What the compiled decoder and encoder share: all layers of a stack in one kernel call."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.linear import CompiledLinear, ThreadScratch, quantized_rows
from pipelines.engine.kernels.host.team_size import KernelRunner
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.families.architecture import Stack

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
        linears: in the order of the fields of abi.DecoderLinears or EncoderLinears; or the one
            for cross-attention keys and values.
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

    A kernel reads one struct: sizes, and addresses of weights, buffers, inputs and outputs (see
    `abi.StackArgs`). The constructor fills in what never changes, a pass the rest.

    Args:
        layers: the layers' weights.
        final: the norm after the last layer, if there is one.
    """

    kernel: ClassVar[str]  # the name of the one that it calls

    def __init__(
        self,
        stack: Stack,
        layers: Sequence[CompiledLayer],
        final: AffineNorm | None,
        library: KernelLibrary,
    ) -> None:
        self._stack, self._num_layers = stack, len(layers)
        self._library, self._runner = library, KernelRunner(library, self.kernel)
        linears = [linear for layer in layers for linear in layer.linears]
        self._linears = (abi.LinearLayer * len(linears))(*(linear.layer for linear in linears))
        # In the order of use: the norm before each block is its own (pre-norm), or the norm that
        # ends the block before it (post-norm).
        norms: list[AffineNorm | None] = [norm for layer in layers for norm in layer.norms]
        norms = [*norms, final] if stack.norm_first else [None, *norms]
        self._norms = (abi.NormWeights * len(norms))(*(_norm_weights(norm) for norm in norms))
        self._weights = layers, norms  # kept alive: the structs hold their addresses
        self._padded_inputs = max(linear.padded_inputs for linear in linears)
        args = self._args = abi.StackArgs()
        args.layers, args.d_model, args.ffn_dim = len(layers), stack.d_model, stack.ffn_dim
        args.heads, args.head_dim, args.norm_first = stack.heads, stack.head_dim, stack.norm_first
        args.activation = abi.ACTIVATIONS.index(stack.activation)
        args.attention_scale = stack.head_dim**-0.5 if stack.scaled else 1.0
        args.norm_eps, args.workspace.quant_max = stack.norm_eps, library.quant_max
        args.linears = ctypes.addressof(self._linears)
        args.norms = ctypes.addressof(self._norms)
        self._buffers: dict[str, Tensor] = {}
        self._reserved: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, stack: Stack, layers: Sequence[CompiledLayer | None], final: AffineNorm | None = None
    ) -> Self | None:
        """A compiled stack of these layers; None unless the kernels support all of them."""
        compiled = [layer for layer in layers if layer is not None]
        positions = stack.relative is not None or stack.rotary is not None
        unsupported = positions or stack.rms or stack.gated
        if len(compiled) < len(layers) or not compiled or unsupported:
            return None
        library = compiled[0].linears[0].library
        return cls(stack, compiled, final, library) if library.has(cls.kernel) else None

    @property
    def level(self) -> str:
        """The instruction set that the kernels were compiled for."""
        return self._library.level

    def _reserve(self, rows: int, positions: int, columns: Mapping[str, int]) -> None:
        """Make the buffers large enough for a pass.

        Args:
            rows: of all activations.
            positions: key positions that attention scores at once.
            columns: of further float32 buffers [rows, columns], by the field of abi.StackArgs that
                holds their address.
        """
        needed = (torch.get_num_threads(), rows, positions, *columns.values())
        reserved = self._reserved or (0,) * len(needed)
        if all(need <= have for need, have in zip(needed, reserved, strict=True)):
            return
        threads, rows, positions, *sizes = self._reserved = tuple(map(max, needed, reserved))
        self._scratch = ThreadScratch(
            threads, max(self._stack.d_model, self._stack.head_dim + positions + abi.SCORES_BEYOND)
        )
        workspace = self._args.workspace
        self._scratch.write_to(workspace)
        self._quantized = quantized_rows(rows, self._padded_inputs)
        self._quant_ranges = torch.empty(rows, 2)
        workspace.quantized = self._quantized.data_ptr()
        workspace.quant_ranges = self._quant_ranges.data_ptr()
        for field, count in zip(columns, sizes, strict=True):
            self._buffers[field] = torch.empty(rows, count)
            setattr(self._args, field, self._buffers[field].data_ptr())


def _norm_weights(norm: AffineNorm | None) -> abi.NormWeights:
    if norm is None:
        return abi.NormWeights()
    return abi.NormWeights(norm.weight.data_ptr(), norm.bias.data_ptr())
