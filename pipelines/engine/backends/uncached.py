"""A backend that reads everything anew at every step: what caches are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups

__all__ = ["UncachedBackend"]


class _TokenLog:
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

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Memories are handed to each pass."""


class UncachedBackend:
    """Wraps a backend; its memories are those of the backend inside."""

    def __init__(self, inside: Backend) -> None:
        self._inside = inside
        self.plan, self.architecture = inside.plan, inside.architecture
        self.reports_attention = False
        self.folder, self.source_dtype = inside.folder, inside.source_dtype
        self.owns, self.encode = inside.owns, inside.encode
        self.logits, self.argmax = inside.logits, inside.argmax

    def caches(self) -> tuple[_TokenLog, _TokenLog]:
        return _TokenLog(), _TokenLog()

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        cache: _TokenLog,
        cross: _TokenLog,
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """As Backend.decode."""
        states = []
        for slot, (new, encoded) in enumerate(zip(ids, encoded_sources, strict=True), slots.start):
            written = cache.ids[slot]
            written[cache.lengths[slot] :] = new
            states.append(self._read(written, encoded)[-len(new) :])
        return torch.stack(states)

    def _read(self, ids: list[int], encoded: EncodedSource) -> Tensor:
        cache, cross = self._fresh(encoded)
        return self._inside.decode([ids], slice(0, 1), [encoded], cache, cross)[0]

    def _fresh(self, encoded: EncodedSource) -> tuple[Any, Any]:
        cache, cross = self._inside.caches()
        cache.alloc()
        slot = cross.alloc()
        cross.store(slot, encoded)
        return cache, cross
