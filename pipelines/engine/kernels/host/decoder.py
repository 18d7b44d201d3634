"""The kernel call that runs all layers of a decoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.stack import CompiledStack
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import ForwardBatch
from pipelines.engine.state.kv_cache import KVCache

__all__ = ["CompiledDecoder"]


class CompiledDecoder(CompiledStack):
    """All layers of a decoder."""

    def __call__(self, x: Tensor, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """Run the layers and the final norm; writes keys and values of the new tokens.

        Args:
            x: float32 [rows × tokens, d_model], the embedded tokens; overwritten.
            batch: the pass.
            cache: bfloat16, with room for the new tokens.

        Returns:
            float32 [rows × tokens, d_model].
        """
        (rows, tokens), table = batch.shape, self._table
        groups, addresses = self._source_groups(batch.encoded_sources)
        sources = np.frombuffer(addresses, dtype=np.int64)
        chunks = -(-int(groups[:, 2].max()) // abi.CHUNK)
        stack = self._stack
        widths = {
            abi.MIXED: stack.attention_dim,
            abi.QKVS: 3 * stack.attention_dim,
            abi.INNER: stack.ffn_dim,
            abi.PARTIAL: stack.heads * chunks * (stack.head_dim + 2),
        }
        self._reserve(rows * tokens, max(cache.position_capacity, abi.CHUNK), widths)
        queries = self._query_buffer(rows * tokens, batch.capture is not None)
        result = torch.empty(x.shape)
        starts = np.array(batch.past_lengths, dtype=np.int64)
        layers = np.array([layer.data_ptr() for layer in cache.layers], dtype=np.int64)
        table[abi.LANES], table[abi.TOKENS], table[abi.CHUNKS] = rows, tokens, chunks
        table[abi.STATES], table[abi.RESULT] = x.data_ptr(), result.data_ptr()
        table[abi.CACHE], table[abi.SLOTS] = layers.ctypes.data, cache.layers[0].shape[1]
        table[abi.ROOM], table[abi.FIRST_SLOT] = cache.position_capacity, batch.slots.start
        table[abi.STARTS], table[abi.GROUPS] = starts.ctypes.data, len(groups)
        table[abi.GROUP], table[abi.SOURCES] = groups.ctypes.data, sources.ctypes.data
        table[abi.SOURCES_BFLOAT16] = batch.encoded_sources[0].keys[0].dtype == torch.bfloat16
        self._library.run("decoder_step", table)
        if batch.capture is not None:
            shape = (self._layers, rows, tokens, stack.heads, stack.head_dim)
            scale = None if stack.scaled else 1.0
            for index, of_layer in enumerate(queries.view(shape)):
                batch.capture.add_queries(index, of_layer.transpose(1, 2), scale)
        return result

    def _source_groups(
        self, encoded_sources: Sequence[EncodedSource]
    ) -> tuple[NDArray[np.int64], bytes]:
        """Group neighboring rows on the same source.

        Returns:
            groups: int64 [groups, 3 (first row, rows, source length)].
            addresses: int64 [groups, layers, 2 (keys, values)] as bytes.
        """
        first_rows = [
            row
            for row, encoded in enumerate(encoded_sources)
            if row == 0 or encoded is not encoded_sources[row - 1]
        ]
        groups = np.empty((len(first_rows), 3), dtype=np.int64)
        groups[:, 0] = first_rows
        groups[:, 1] = np.diff(groups[:, 0], append=len(encoded_sources))
        groups[:, 2] = [encoded_sources[row].length for row in first_rows]
        return groups, b"".join([encoded_sources[row].addresses for row in first_rows])

    def _query_buffer(self, rows: int, all_layers: bool) -> Tensor:
        """The buffer for the cross-attention queries of one layer, or of all of them."""
        count = rows * self._stack.attention_dim
        self._table[abi.QUERIES_STRIDE] = count if all_layers else 0
        # The queries of one layer may share the buffer of the attention's output.
        queries = torch.empty(self._layers, count) if all_layers else self._buffers[abi.MIXED]
        self._table[abi.QUERIES] = queries.data_ptr()
        return queries
