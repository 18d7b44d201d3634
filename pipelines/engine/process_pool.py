"""Processes that work side by side, each with a tool of its own.

For long batches on a CPU. Each stays on its own core with a batch of its own, where the threads of
one process wait for each other, and for what Python does between two steps. Four processes
translate 1.3 to 1.5 times as much as one with four threads, and take four times its memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from pipelines.errors import EngineError

__all__ = ["ProcessPool"]

Part = TypeVar("Part")
Done = TypeVar("Done")

# Parts that are handed out to each, one of them ahead.
_AHEAD = 2


class ProcessPool(Generic[Part, Done]):
    """size: how many. make: called once in each process, as `pickle` carries it there; gives the
    function that does a part of the work."""

    def __init__(self, size: int, make: Callable[[], Callable[[Part], Done]]) -> None:
        self.size = size
        # Not forked: this process may have threads, which a fork would cut off in mid-work.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(size, context, initializer=_start, initargs=(make,))

    def map(self, parts: Iterable[Part | None]) -> Generator[Done, None, None]:
        """What becomes of each part, in order. At most two for each process are taken in advance.
        None is a pause: all before it are handed out before the next is asked for.

        Closing the iterator drops what nobody has begun. Raises what a part raised, and EngineError
        when a process came to an end.
        """
        pending: deque[Future[Done]] = deque()
        try:
            for part in parts:
                if part is not None:
                    pending.append(self._pool.submit(_do, part))
                while pending and (part is None or len(pending) >= _AHEAD * self.size):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise EngineError(
                f"one of {self.size} worker processes has ended, perhaps for want of memory; "
                "try fewer"
            ) from error
        finally:
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """Let them go, once they have done what they are at."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> ProcessPool[Part, Done]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_tool: Callable[[Any], Any]


def _start(make: Callable[[], Callable[[Any], Any]]) -> None:
    global _tool
    # Ctrl-C in a terminal reaches all of them; whoever collects the work says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tool = make()


def _end_with_parent() -> None:
    """A parent that was killed lets nobody go."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(part: Any) -> Any:
    return _tool(part)
