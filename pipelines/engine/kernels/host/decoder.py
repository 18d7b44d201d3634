"""The kernel call that runs all layers of a decoder."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.stack import CompiledStack
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import ForwardBatch
from pipelines.engine.state.kv_cache import KVCache
from pipelines.families.architecture import CrossAttentionSpec, FeedForwardSpec, SelfAttentionSpec


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

        Args:
            x: float32 [sequences × tokens, d_model], the embedded tokens; overwritten.
            batch: the pass.
            cache: bfloat16, with room for the new tokens.

        Returns:
            float32 [sequences × tokens, d_model].
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
