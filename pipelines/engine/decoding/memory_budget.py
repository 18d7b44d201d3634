"""One limit for the caches of all models."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.state.encoded_source import EncodedSource

__all__ = ["MemoryBudget", "CacheOwner", "cache_bytes_needed"]


def cache_bytes_needed(
    backend: Backend,
    cache: DecoderCache,
    cross: SourceCache,
    sequences: int,
    tokens: int,
    encoded_sources: Sequence[EncodedSource],
) -> int:
    """Bytes that caches may need at the worst for so many lanes of at most `tokens` tokens, on
    these sources. What is there already counts, as far as it stays."""
    source = max((encoded.length for encoded in encoded_sources), default=0)
    return cache.bytes_for(sequences, tokens, source) + cross.bytes_for(
        len(encoded_sources), source
    )


class CacheOwner(Protocol):
    """A batch, as its budget sees it."""

    @property
    def promised(self) -> int:
        """Bytes that its caches hold now, or may come to need for the generations it runs."""
        ...

    @property
    def running(self) -> int:
        """How many generations use them."""
        ...

    def release(self) -> None:
        """Give back caches that nobody uses."""
        ...


class MemoryBudget:
    """limit: bytes, or None for as much as there is."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._holders: weakref.WeakSet[CacheOwner] = weakref.WeakSet()

    def add(self, holder: CacheOwner) -> None:
        self._holders.add(holder)

    def allows(self, holder: CacheOwner, need: int) -> bool:
        """Whether a batch may go on to need so many bytes beside what the others were promised.
        Takes back what idle batches keep, if need be."""
        if self.limit is None:
            return True
        others = [other for other in self._holders if other is not holder]
        if need + sum(other.promised for other in others) > self.limit:
            for other in others:
                if not other.running:
                    other.release()
        return need + sum(other.promised for other in others) <= self.limit

    def others_run(self, holder: CacheOwner) -> bool:
        """Whether memory may become free without this batch's doing."""
        return any(other.running for other in self._holders if other is not holder)
