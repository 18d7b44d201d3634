"""Threads that compute side by side, each alone, where that beats all of them on one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

__all__ = ["ComputeThreads"]

T = TypeVar("T")


class ComputeThreads:
    """So many CPU threads, for several long jobs at a time.

    Only for operations that take milliseconds each. Between two of them a thread needs Python's
    lock: four threads that each stepped 16 rows of a translation, at some 40 µs an operation, did
    half as much as four on every operation.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do all jobs and return what they return, in order; raises what the first of them raised,
        after all have ended."""
        if len(jobs) <= 1 or self.count == 1:
            return [job() for job in jobs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="edgeapp-worker")
        futures: list[Future[T]] = [self._pool.submit(_single_threaded, job) for job in jobs]
        try:
            wait(futures)
        finally:  # Ctrl-C must not leave them at work on what the caller puts in order
            wait(futures)
            torch.set_num_threads(self.count)  # which for MKL is a setting of the whole process
        return [future.result() for future in futures]


def _single_threaded(job: Callable[[], T]) -> T:
    torch.set_num_threads(1)
    with torch.inference_mode():
        return job()
