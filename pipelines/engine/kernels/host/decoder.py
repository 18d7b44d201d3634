"""A decoder's layers in one call of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.host.stack import CompiledStack
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import ForwardBatch
from pipelines.engine.state.kv_cache import KVCache

__all__ = ["CompiledDecoder"]


class CompiledDecoder(CompiledStack):
    def __call__(self, x: Tensor, batch: ForwardBatch, cache: KVCache) -> Tensor:
        """States [rows × tokens, d_model], which are lost, → the same behind the last layer and
        its norm. Writes the cache."""
        (rows, tokens), table = batch.shape, self._table
        groups, joined = self._groups(batch.encoded_sources)
        sources = np.frombuffer(joined, dtype=np.int64)
        chunks = -(-int(groups[:, 2].max()) // at.CHUNK)
        stack = self._stack
        numbers = {
            at.MIXED: stack.inner,
            at.QKVS: 3 * stack.inner,
            at.INNER: stack.ffn,
            at.PARTIAL: stack.heads * chunks * (stack.head_dim + 2),
        }
        self._reserve(rows * tokens, max(cache.room, at.CHUNK), numbers)
        queries = self._queries(rows * tokens, batch.capture is not None)
        result = torch.empty(x.shape)
        starts = np.array(batch.starts, dtype=np.int64)
        layers = np.array([layer.data_ptr() for layer in cache.layers], dtype=np.int64)
        table[at.LANES], table[at.TOKENS], table[at.CHUNKS] = rows, tokens, chunks
        table[at.STATES], table[at.RESULT] = x.data_ptr(), result.data_ptr()
        table[at.CACHE], table[at.SLOTS] = layers.ctypes.data, cache.layers[0].shape[1]
        table[at.ROOM], table[at.FIRST_SLOT] = cache.room, batch.slots.start
        table[at.STARTS], table[at.GROUPS] = starts.ctypes.data, len(groups)
        table[at.GROUP], table[at.SOURCES] = groups.ctypes.data, sources.ctypes.data
        table[at.SOURCES_BFLOAT16] = batch.encoded_sources[0].keys[0].dtype == torch.bfloat16
        self._library.run("decoder_step", table)
        if batch.capture is not None:
            shape = (self._layers, rows, tokens, stack.heads, stack.head_dim)
            scale = None if stack.scaled else 1.0
            for index, of_layer in enumerate(queries.view(shape)):
                batch.capture.note(index, of_layer.transpose(1, 2), scale)
        return result

    def _groups(self, encoded_sources: Sequence[EncodedSource]) -> tuple[NDArray[np.int64], bytes]:
        """(groups, sources) as the table wants them."""
        firsts = [
            place
            for place, encoded in enumerate(encoded_sources)
            if place == 0 or encoded is not encoded_sources[place - 1]
        ]
        groups = np.empty((len(firsts), 3), dtype=np.int64)
        groups[:, 0] = firsts
        groups[:, 1] = np.diff(groups[:, 0], append=len(encoded_sources))
        groups[:, 2] = [encoded_sources[first].length for first in firsts]
        return groups, b"".join([encoded_sources[first].addresses for first in firsts])

    def _queries(self, rows: int, of_all_layers: bool) -> Tensor:
        """Room for the queries of one layer, or of each."""
        count = rows * self._stack.inner
        self._table[at.QUERIES_STRIDE] = count if of_all_layers else 0
        # Of one layer they can lie where what comes of them will.
        queries = torch.empty(self._layers, count) if of_all_layers else self._buffers[at.MIXED]
        self._table[at.QUERIES] = queries.data_ptr()
        return queries
