"""A decoder's layers in one call of a kernel."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.model.cache import CrossCache, SlotCache
from pipelines.engine.model.compiled import layout as at
from pipelines.engine.model.compiled.stack import CompiledStack
from pipelines.engine.model.step import Step

__all__ = ["CompiledDecoder"]


class CompiledDecoder(CompiledStack):
    def __call__(self, x: Tensor, step: Step, cache: SlotCache, cross: CrossCache) -> Tensor:
        """States [rows × tokens, d_model], which are lost, → the same behind the last layer and
        its norm. Writes the cache."""
        (rows, tokens), table = step.shape, self._table
        groups, sources = self._sources(step, cross)
        chunks = -(-int(groups[:, 2].max()) // at.CHUNK)
        self._reserve(rows * tokens, chunks, max(cache.room, at.CHUNK))
        queries = self._queries(rows * tokens, step.readout is not None)
        result = torch.empty(x.shape)
        starts = np.array(step.starts, dtype=np.int64)
        layers = np.array([layer.data_ptr() for layer in cache.layers], dtype=np.int64)
        table[at.LANES], table[at.TOKENS], table[at.CHUNKS] = rows, tokens, chunks
        table[at.STATES], table[at.RESULT] = x.data_ptr(), result.data_ptr()
        table[at.CACHE], table[at.SLOTS] = layers.ctypes.data, cache.layers[0].shape[1]
        table[at.ROOM], table[at.FIRST_SLOT] = cache.room, step.slots.start
        table[at.STARTS], table[at.GROUPS] = starts.ctypes.data, len(groups)
        table[at.GROUP], table[at.SOURCES] = groups.ctypes.data, sources.ctypes.data
        self._library.run("step", table)
        if step.readout is not None:
            shape = (len(self._blocks), rows, tokens, self._stack.heads, self._stack.head_dim)
            scale = None if self._stack.scaled else 1.0
            for index, of_layer in enumerate(queries.view(shape)):
                step.readout.note(index, of_layer.transpose(1, 2), scale)
        return result

    def _sources(
        self, step: Step, cross: CrossCache
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(groups, sources) as the table wants them."""
        if step.memories is None:
            return self._in_slots(step, cross)
        firsts = [
            place
            for place, memory in enumerate(step.memories)
            if place == 0 or memory is not step.memories[place - 1]
        ]
        memories = [step.memories[first] for first in firsts]
        ends = [*firsts[1:], len(step.memories)]
        groups = np.array(
            [
                (first, end - first, memory.length, memory.length * self._stack.head_dim)
                for first, end, memory in zip(firsts, ends, memories, strict=True)
            ],
            dtype=np.int64,
        )
        self._table[at.SOURCES_BFLOAT16] = memories[0].keys[0].dtype == torch.bfloat16
        sources = np.stack([memory.addresses for memory in memories], axis=1)
        return groups, sources

    def _in_slots(
        self, step: Step, cross: CrossCache
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        widths = np.array(step.sharing.widths, dtype=np.int64)
        head = cross.room * self._stack.head_dim
        groups = np.empty((len(widths), 4), dtype=np.int64)
        groups[:, 0], groups[:, 1] = np.cumsum(widths) - widths, widths
        groups[:, 2], groups[:, 3] = cross.lengths[step.sources], head
        layers = np.array([layer.data_ptr() for layer in cross.layers], dtype=np.int64)
        slots = np.arange(step.sources.start, step.sources.stop, dtype=np.int64)
        size = cross.layers[0].element_size() * self._stack.heads * head
        sources = np.empty((len(layers), len(slots), 2), dtype=np.int64)
        sources[:, :, 0] = layers[:, None] + size * slots
        sources[:, :, 1] = sources[:, :, 0] + size * cross.layers[0].shape[1]
        self._table[at.SOURCES_BFLOAT16] = cross.layers[0].dtype == torch.bfloat16
        return groups, sources

    def _queries(self, rows: int, of_all_layers: bool) -> Tensor:
        """Room for the queries of one layer, or of each."""
        count = rows * self._stack.inner
        self._table[at.QUERIES_STRIDE] = count if of_all_layers else 0
        # Of one layer they can lie where what comes of them will.
        queries = (
            torch.empty(len(self._blocks), count) if of_all_layers else self._buffers[at.MIXED]
        )
        self._table[at.QUERIES] = queries.data_ptr()
        return queries
