"""One memory limit for the caches of all models."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class CacheOwner(Protocol):
    """What a memory budget needs of a batch."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes that its caches hold, or may come to need for its running requests."""
        ...

    @property
    def num_running(self) -> int:
        """How many requests use the caches."""
        ...

    def release_caches(self) -> None:
        """Free caches that no request uses."""
        ...


class MemoryBudget:
    """Admits requests as long as the caches of all batches stay below a limit in bytes, if any."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._owners: weakref.WeakSet[CacheOwner] = weakref.WeakSet()
        # Models are loaded by one thread while another one steps and reads the set.
        self._lock = threading.Lock()

    def add(self, owner: CacheOwner) -> None:
        """Count a batch against this budget, for as long as it lives."""
        with self._lock:
            self._owners.add(owner)

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the caches of all batches hold, or may come to need."""
        with self._lock:
            owners = list(self._owners)
        return sum(owner.reserved_bytes for owner in owners)

    def _others(self, owner: CacheOwner) -> list[CacheOwner]:
        with self._lock:
            return [other for other in self._owners if other is not owner]

    def allows(self, owner: CacheOwner, need: int) -> bool:
        """Whether `need` bytes for a batch fit beside what the others have reserved.

        Frees the caches of idle batches if that is needed.
        """
        if self.limit is None:
            return True
        others = self._others(owner)
        if need + sum(other.reserved_bytes for other in others) > self.limit:
            for other in others:
                if not other.num_running:
                    other.release_caches()
        return need + sum(other.reserved_bytes for other in others) <= self.limit

    def others_run(self, owner: CacheOwner) -> bool:
        """Whether other batches run requests, and so will free memory."""
        return any(other.num_running for other in self._others(owner))
