"""A backend without a KV cache, which recomputes every step from the beginning.

It wraps another backend, for comparing speed and results with and without cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend, Caches
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import AttentionCapture
from pipelines.engine.state.kv_cache import NullCrossCache


class _TokenLog:
    """The cache of an UncachedBackend: the token ids of each slot, no tensors."""

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

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
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


class UncachedBackend:
    """A backend whose passes read each sequence anew; the rest is the wrapped backend's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.plan, self.architecture = backend.plan, backend.architecture
        self.source = backend.source
        self.reports_attention, self.weight_bytes = False, backend.weight_bytes
        self.folder, self.source_dtype = backend.folder, backend.source_dtype
        self.owns, self.encode = backend.owns, backend.encode
        self.encode_ahead = backend.encode_ahead
        self.sources_at_once = backend.sources_at_once
        self.logits, self.argmax = backend.logits, backend.argmax

    def caches(self) -> Caches:
        log = _TokenLog()

        def decode(
            ids: Sequence[Sequence[int]],
            slots: slice,
            encoded_sources: Sequence[EncodedSource],
            capture: AttentionCapture | None = None,
            source_groups: SourceGroups | None = None,
        ) -> Tensor:
            states = []
            for slot, (new, encoded) in enumerate(
                zip(ids, encoded_sources, strict=True), slots.start
            ):
                sequence = log.ids[slot]
                sequence[log.lengths[slot] :] = new
                fresh = self._backend.caches()
                fresh.add_source(encoded)
                (hidden,) = fresh.decode([sequence], slice(0, 1), [encoded])
                states.append(hidden[-len(new) :])
            return torch.stack(states)

        return Caches(log, NullCrossCache(), decode)
