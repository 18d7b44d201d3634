"""A backend without a KV cache, which recomputes every step from the beginning.

It wraps another backend, for comparing speed and results with and without cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups


class _TokenLog:
    """Both caches of an UncachedBackend: the token ids of each slot, no tensors."""

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
        """Does nothing."""

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Does nothing: `decode` is given the sources."""


class UncachedBackend:
    """A backend whose `decode` reads each sequence anew; the rest is the wrapped backend's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.plan, self.architecture = backend.plan, backend.architecture
        self.source = backend.source
        self.reports_attention = False
        self.folder, self.source_dtype = backend.folder, backend.source_dtype
        self.owns, self.encode = backend.owns, backend.encode
        self.sources_at_once = backend.sources_at_once
        self.logits, self.argmax = backend.logits, backend.argmax

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
        """Run one pass, as Backend.decode; each sequence alone and from its first token."""
        states = []
        for slot, (new, encoded) in enumerate(zip(ids, encoded_sources, strict=True), slots.start):
            sequence = cache.ids[slot]
            sequence[cache.lengths[slot] :] = new
            states.append(self._decode_sequence(sequence, encoded)[-len(new) :])
        return torch.stack(states)

    def _decode_sequence(self, ids: list[int], encoded: EncodedSource) -> Tensor:
        """Hidden states [len(ids), d_model]."""
        cache, cross = self._fresh_caches(encoded)
        return self._backend.decode([ids], slice(0, 1), [encoded], cache, cross)[0]

    def _fresh_caches(self, encoded: EncodedSource) -> tuple[Any, Any]:
        """The wrapped backend's caches with one empty slot for this source."""
        cache, cross = self._backend.caches()
        cache.alloc()
        slot = cross.alloc()
        cross.store(slot, encoded)
        return cache, cross
