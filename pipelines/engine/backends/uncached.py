"""A backend that reads everything anew at every step: what caches are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.state.attention_capture import Readout
from pipelines.engine.state.encoded_source import Memory, Sharing

__all__ = ["Uncached"]


class _Written:
    """The tokens of each slot, and nothing computed from them."""

    bytes = 0

    def __init__(self) -> None:
        self.ids: list[list[int]] = []
        self.lengths: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def alloc(self) -> int:
        self.ids.append([])
        self.lengths.append(0)
        return len(self.ids) - 1

    def bytes_for(self, slots: int, *longest: int) -> int:
        """Nothing is kept."""
        return 0

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in range(slots.start, slots.stop):
            self.lengths[slot] += tokens

    def truncate(self, slot: int, length: int) -> None:
        self.lengths[slot] = length

    def reorder(self, sources: Sequence[int]) -> None:
        self.ids = [self.ids[source][:] for source in sources]
        self.lengths = [self.lengths[source] for source in sources]

    def erase(self, slot: int) -> None:
        """Ids are all that is kept."""

    def store(self, slot: int, memory: Memory) -> None:
        """Memories are handed to each pass."""


class Uncached:
    """Wraps a backend; its memories are those of the backend inside."""

    def __init__(self, inside: Backend) -> None:
        self._inside = inside
        self.plan, self.architecture = inside.plan, inside.architecture
        self.follows_attention = False
        self.folder, self.memory_dtype = inside.folder, inside.memory_dtype
        self.owns, self.encode = inside.owns, inside.encode
        self.logits, self.likeliest = inside.logits, inside.likeliest

    def caches(self) -> tuple[_Written, _Written]:
        return _Written(), _Written()

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        memories: Sequence[Memory],
        cache: _Written,
        cross: _Written,
        readout: Readout | None = None,
        sharing: Sharing | None = None,
    ) -> Tensor:
        """As Backend.decode."""
        states = []
        for slot, (new, memory) in enumerate(zip(ids, memories, strict=True), slots.start):
            written = cache.ids[slot]
            written[cache.lengths[slot] :] = new
            states.append(self._read(written, memory)[-len(new) :])
        return torch.stack(states)

    def _read(self, ids: list[int], memory: Memory) -> Tensor:
        cache, cross = self._fresh(memory)
        return self._inside.decode([ids], slice(0, 1), [memory], cache, cross)[0]

    def _fresh(self, memory: Memory) -> tuple[Any, Any]:
        cache, cross = self._inside.caches()
        cache.alloc()
        slot = cross.alloc()
        cross.store(slot, memory)
        return cache, cross
