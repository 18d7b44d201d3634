"""What one person may have running and waiting, so that another person's requests are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

__all__ = ["FairThreads", "MessageRates", "Turns"]

T = TypeVar("T")

_COST_PER_S, _BURST = 250.0, 1_500.0


class Turns:
    """A limit on what runs for each person at the same time; the rest waits for its turn.

    Args:
        per_person: The limit.
    """

    def __init__(self, per_person: int) -> None:
        self._per_person = per_person
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, person: str) -> asyncio.Semaphore:
        """The person's slots: `async with` waits for a free one."""
        slots = self._slots.get(person)
        if slots is None:
            self._slots[person] = slots = asyncio.Semaphore(self._per_person)
        return slots


class FairThreads:
    """A thread pool of which one person gets a part.

    Args:
        threads: The number of threads.
        per_person: The number of threads that work for one person at the same time.
    """

    def __init__(self, threads: int = 8, per_person: int = 2) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="edgeapp-request")
        self._turns = Turns(per_person)

    async def run(self, person: str, function: Callable[[], T]) -> T:
        """Call a function in a thread, when it is the person's turn.

        Args:
            person: Whose turn it is.
            function: It goes on in its thread if this call is cancelled.
        """
        slots = self._turns.of(person)
        await slots.acquire()
        try:
            work = asyncio.get_running_loop().run_in_executor(self._executor, function)
        except BaseException:
            slots.release()
            raise
        # Not when this call ends: the thread may be busy for longer.
        work.add_done_callback(lambda _: slots.release())
        return await asyncio.shield(work)

    def close(self) -> None:
        """Start no more calls."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class MessageRates:
    """How fast the messages of each person are read: those of all tabs together.

    A token bucket: after a burst, a message is read when its cost has been earned.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    async def take(self, person: str, cost: float) -> None:
        """Wait until a message of this cost may be read. Lets other tasks run in any case.

        Args:
            person: Who sends it.
            cost: 250 are earned in a second, and at most 1,500 are saved.
        """
        now = time.monotonic()
        if person not in self._buckets:
            full = [name for name, bucket in self._buckets.items() if bucket.at(now) >= _BURST]
            for name in full:  # a new one is as good
                del self._buckets[name]
        bucket = self._buckets.setdefault(person, _Bucket(_BURST, now))
        bucket.tokens, bucket.filled_at = bucket.at(now) - cost, now
        await asyncio.sleep(max(0.0, -bucket.tokens / _COST_PER_S))


@dataclass
class _Bucket:
    """tokens: the cost that could be spent at once, at a time (time.monotonic)."""

    tokens: float
    filled_at: float

    def at(self, now: float) -> float:
        return min(_BURST, self.tokens + (now - self.filled_at) * _COST_PER_S)
