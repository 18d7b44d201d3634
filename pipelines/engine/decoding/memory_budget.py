"""One limit for the caches of all models."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from pipelines.engine.backends.base import Backend, Slots, Sources
from pipelines.engine.state.encoded_source import Memory

__all__ = ["Budget", "Holder", "need_of"]


def need_of(
    network: Backend,
    cache: Slots,
    cross: Sources,
    lanes: int,
    tokens: int,
    memories: Sequence[Memory],
) -> int:
    """Bytes that caches may need at the worst for so many lanes of at most `tokens` tokens, on
    these sources. What is there already counts, as far as it stays."""
    source = max((memory.length for memory in memories), default=0)
    return cache.bytes_for(lanes, tokens, source) + cross.bytes_for(len(memories), source)


class Holder(Protocol):
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


class Budget:
    """limit: bytes, or None for as much as there is."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()

    def add(self, holder: Holder) -> None:
        self._holders.add(holder)

    def allows(self, holder: Holder, need: int) -> bool:
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

    def others_run(self, holder: Holder) -> bool:
        """Whether memory may become free without this batch's doing."""
        return any(other.running for other in self._holders if other is not holder)
