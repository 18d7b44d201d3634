"""All layers of a stack in one kernel call: decoder, text encoder, keys and values of sources.

The encoder's sources follow each other without padding, so that no product is computed for padding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.linear import CompiledLinear, ThreadScratch, quantized_rows
from pipelines.engine.kernels.host.team_size import KernelRunner
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import ForwardBatch
from pipelines.engine.state.kv_cache import KVCache
from pipelines.families.architecture import (
    BlockSpec,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    SelfAttentionSpec,
    Stack,
    changed_fields,
)


@dataclass(frozen=True, eq=False)
class AffineNorm:
    """Weight and bias of a layer norm, both float32 [d_model]."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class CompiledBlock:
    """The weights of one block of a layer, as a kernel reads them; without a norm if it applies
    none."""

    data: BlockSpec
    linears: tuple[CompiledLinear, ...]
    norm: AffineNorm | None

    @classmethod
    def of(
        cls, data: BlockSpec, linears: Sequence[object], norm: AffineNorm | None
    ) -> CompiledBlock | None:
        """Return a block of these parts; None unless the kernels support all of them."""
        compiled = tuple(op for op in linears if isinstance(op, CompiledLinear))
        supported = len(compiled) == len(linears) and norm is not None
        return cls(data, compiled, norm) if supported else None


# What the kernels compute: kinds of parts, and of each the fields that they, or the code around
# them, read. A part of another kind is left to torch, as is one with another value than the default
# in any other field. A new kind or field is therefore slow until it is named here, never wrong.
_KNOWN: Mapping[type, tuple[str, ...]] = {
    Stack: (
        *("layers", "heads", "head_dim", "d_model", "max_positions", "blocks", "norm"),
        *("final_norm", "positions", "position_offset", "embedding_scale", "embedding_norm"),
    ),
    Norm: ("first", "eps", "bias"),
    SelfAttentionSpec: ("scaled",),
    CrossAttentionSpec: ("scaled",),
    FeedForwardSpec: ("width", "activation"),
}


def _knows(part: Stack | Norm | BlockSpec) -> bool:
    """Return whether the kernels compute a part of a model as its data says."""
    known = _KNOWN.get(type(part))
    if known is None or changed_fields(part, known):
        return False
    return not isinstance(part, FeedForwardSpec) or part.activation in abi.ACTIVATIONS


class CompiledStack:
    """All layers of one side of a model. Not thread-safe: its buffers are reused by every pass.

    A kernel reads one struct: sizes, and addresses of weights, buffers, inputs and outputs (see
    `abi.StackArgs`). The constructor fills in what never changes, a pass the rest.

    Args:
        blocks: the weights of the blocks of all layers, in order.
        final: the norm after the last layer, if there is one.
    """

    kernel: ClassVar[str]  # the name of the one that it calls
    kinds: ClassVar[Mapping[type[BlockSpec], int]]  # the blocks that it runs → BlockArgs.kind

    def __init__(
        self,
        stack: Stack,
        blocks: Sequence[CompiledBlock],
        final: AffineNorm | None,
        library: KernelLibrary,
    ) -> None:
        self._stack = stack
        self._library, self._runner = library, KernelRunner(library, self.kernel)
        linears = [linear for block in blocks for linear in block.linears]
        self._linears = (abi.LinearLayer * len(linears))(*(linear.layer for linear in linears))
        # In the order of use: the norm before each block is its own (pre-norm), or the norm that
        # ends the block before it (post-norm).
        norms = [block.norm for block in blocks]
        norms = [*norms, final] if stack.norm.first else [None, *norms]
        self._weights = blocks, norms  # kept alive: the structs hold their addresses
        self._blocks = (abi.BlockArgs * len(norms))()
        address, of_layer = ctypes.addressof(self._linears), len(blocks) // stack.layers
        for index, (args, norm) in enumerate(zip(self._blocks, norms, strict=True)):
            if norm is not None:
                args.norm = abi.NormWeights(norm.weight.data_ptr(), norm.bias.data_ptr())
            if index < len(blocks):
                data = blocks[index].data
                args.kind, args.layer = self.kinds[type(data)], index // of_layer
                args.linears = address
                address += ctypes.sizeof(abi.LinearLayer) * len(blocks[index].linears)
                if isinstance(data, FeedForwardSpec):
                    args.activation = abi.ACTIVATIONS.index(data.activation)
        self._padded_inputs = max(linear.padded_inputs for linear in linears)
        self._ffn_dim = max(
            (block.data.width for block in blocks if isinstance(block.data, FeedForwardSpec)),
            default=0,
        )
        self._scaled = all(_scaled(blocks))
        args = self._args = abi.StackArgs()
        args.layers, args.d_model = stack.layers, stack.d_model
        args.heads, args.head_dim, args.norm_first = stack.heads, stack.head_dim, stack.norm.first
        args.attention_scale = stack.head_dim**-0.5 if self._scaled else 1.0
        args.norm_eps, args.workspace.quant_max = stack.norm.eps, library.quant_max
        args.blocks, args.block_args = len(blocks), ctypes.addressof(self._blocks)
        self._buffers: dict[str, Tensor] = {}
        self._reserved: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, stack: Stack, blocks: Sequence[CompiledBlock | None], final: AffineNorm | None = None
    ) -> Self | None:
        """Return a compiled stack of these blocks; None unless the kernels support all of them."""
        compiled = [block for block in blocks if block is not None]
        parts: tuple[Stack | Norm | BlockSpec, ...] = (stack, stack.norm, *stack.blocks)
        supported = (
            0 < len(compiled) == len(blocks)
            and all(_knows(part) for part in parts)
            and all(type(block.data) in cls.kinds for block in compiled)
            and len({*_scaled(compiled)}) <= 1
            and (stack.norm.first or not stack.final_norm)
        )
        if not supported:
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
        needed = (self._runner.threads, rows, positions, *columns.values())
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


def _scaled(blocks: Sequence[CompiledBlock]) -> list[bool]:
    """Return for each attention block whether its scores are scaled."""
    attention = (block.data for block in blocks)
    return [
        data.scaled
        for data in attention
        if isinstance(data, SelfAttentionSpec | CrossAttentionSpec)
    ]


class CompiledEncoder(CompiledStack):
    """All layers of a text encoder."""

    kernel = "encoder_pass"
    kinds = {SelfAttentionSpec: abi.ENCODER_ATTENTION, FeedForwardSpec: abi.FEED_FORWARD}

    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run the layers and the final norm on embedded sources, one after the other.

        x: float32 [sum of lengths, d_model]; overwritten. Returns the same shape.
        """
        args, result = self._args, torch.empty(x.shape)
        attention_dim = self._stack.attention_dim
        columns = {
            "qkv": 3 * attention_dim,
            "attention_output": attention_dim,
            "ffn_hidden": self._ffn_dim,
        }
        self._reserve(len(x), max(lengths), columns)
        offsets = _row_offsets(lengths)
        args.sequences, args.row_offsets = len(lengths), offsets.ctypes.data
        args.states, args.result = x.data_ptr(), result.data_ptr()
        self._runner.run(args, len(x))
        return result


class CompiledCrossKV(CompiledStack):
    """The cross-attention key and value projections of all decoder layers."""

    kernel = "project_cross_kv"
    kinds = {CrossAttentionSpec: abi.CROSS_ATTENTION}

    def __call__(self, hidden: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Project encoder states [sum of lengths, d_model] to keys and values.

        Returns for each source bfloat16 [layers, 2 (keys, values), heads, length, head_dim].
        """
        args, stack = self._args, self._stack
        x = hidden.float().contiguous()
        self._reserve(len(x), 0, {"qkv": 2 * stack.attention_dim})
        offsets = _row_offsets(lengths)
        results = [
            torch.empty(stack.layers, 2, stack.heads, length, stack.head_dim, dtype=torch.bfloat16)
            for length in lengths
        ]
        addresses = np.array([result.data_ptr() for result in results], dtype=np.int64)
        args.sequences, args.row_offsets = len(lengths), offsets.ctypes.data
        args.states, args.cross_kv = x.data_ptr(), addresses.ctypes.data
        self._runner.run(args, len(x))
        return results


def _row_offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    """The first row of each source, then the number of all rows: int64 [sources + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class CompiledDecoder(CompiledStack):
    """All layers of a decoder."""

    kernel = "decoder_step"
    kinds = {
        SelfAttentionSpec: abi.SELF_ATTENTION,
        CrossAttentionSpec: abi.CROSS_ATTENTION,
        FeedForwardSpec: abi.FEED_FORWARD,
    }

    def __call__(self, x: Tensor, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Run the layers and the final norm; writes keys and values of the new tokens.

        x: float32 [sequences × tokens, d_model], the embedded tokens; overwritten. The cache is
        bfloat16, with room for the new tokens. Returns the same shape.
        """
        (sequences, tokens), args, stack = batch.shape, self._args, self._stack
        groups = _source_groups(batch.encoded_sources)
        encoded_sources = [batch.encoded_sources[group.first_sequence] for group in groups]
        source_kv = b"".join([encoded.addresses for encoded in encoded_sources])
        longest = max(encoded.length for encoded in encoded_sources)
        chunks = -(-longest // abi.CHUNK_POSITIONS)
        columns = {
            "qkv": 3 * stack.attention_dim,
            "attention_output": stack.attention_dim,
            "ffn_hidden": self._ffn_dim,
            "cross_partials": stack.heads * chunks * (stack.head_dim + 2),
        }
        rows = sequences * tokens
        self._reserve(rows, max(cache.position_capacity, abi.CHUNK_POSITIONS), columns)
        queries = self._query_buffer(rows, batch.capture is not None)
        result = torch.empty(x.shape)
        past_lengths = np.array(batch.past_lengths, dtype=np.int64)
        kv_cache = np.array([layer.data_ptr() for layer in cache.layers], dtype=np.int64)
        args.sequences, args.new_tokens = sequences, tokens
        args.states, args.result = x.data_ptr(), result.data_ptr()
        args.past_lengths, args.kv_cache = past_lengths.ctypes.data, kv_cache.ctypes.data
        args.slot_capacity, args.position_capacity = cache.slot_capacity, cache.position_capacity
        args.first_slot = batch.slots.start
        args.groups, args.source_groups = len(groups), ctypes.addressof(groups)
        args.source_kv = np.frombuffer(source_kv, dtype=np.int64).ctypes.data
        args.max_chunks = chunks
        self._runner.run(args, rows)
        if batch.capture is not None:
            shape = (stack.layers, sequences, tokens, stack.heads, stack.head_dim)
            scale = None if self._scaled else 1.0
            for index, of_layer in enumerate(queries.view(shape)):
                batch.capture.add_queries(index, of_layer.transpose(1, 2), scale)
        return result

    def _query_buffer(self, rows: int, all_layers: bool) -> Tensor:
        """The buffer for the cross-attention queries of one layer, or of all of them."""
        count = rows * self._stack.attention_dim
        self._args.cross_queries_stride = count if all_layers else 0
        # The queries of one layer may share the buffer of the attention's output.
        queries = (
            torch.empty(self._stack.layers, count)
            if all_layers
            else self._buffers["attention_output"]
        )
        self._args.cross_queries = queries.data_ptr()
        return queries


def _source_groups(encoded_sources: Sequence[EncodedSource]) -> ctypes.Array[abi.SourceGroup]:
    """Group neighboring sequences on the same source, one SourceGroup for each run of them."""
    runs: list[list[int]] = []
    for index, encoded in enumerate(encoded_sources):
        if runs and encoded is encoded_sources[index - 1]:
            runs[-1][1] += 1
        else:
            runs.append([index, 1, encoded.length])
    return (abi.SourceGroup * len(runs))(*(abi.SourceGroup(*run) for run in runs))
