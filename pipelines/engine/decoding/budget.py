"""One limit for the caches of all models."""

from __future__ import annotations

import weakref
from typing import Protocol

__all__ = ["Budget", "Holder"]


class Holder(Protocol):
    """A batch, as its budget sees it."""

    @property
    def bytes(self) -> int:
        """What its caches hold now."""
        ...

    @property
    def running(self) -> int:
        """How many generations use them."""
        ...

    def bytes_for(self, lanes: int) -> int:
        """What they would hold with so many lanes in use."""
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

    def allows(self, holder: Holder, lanes: int) -> bool:
        """Whether a batch may use so many lanes. Takes back what idle batches keep, if need be."""
        if self.limit is None:
            return True
        if self._total(holder, lanes) > self.limit:
            for other in self._holders:
                if not other.running:
                    other.release()
        return self._total(holder, lanes) <= self.limit

    def others_run(self, holder: Holder) -> bool:
        """Whether memory may become free without this batch's doing."""
        return any(other.running for other in self._holders if other is not holder)

    def _total(self, holder: Holder, lanes: int) -> int:
        rest = sum(other.bytes for other in self._holders if other is not holder)
        return rest + max(holder.bytes, holder.bytes_for(lanes))
