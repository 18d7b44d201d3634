"""Single-threaded computations: one for each CPU thread at a time, or one in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

import torch

T = TypeVar("T")


class ComputeThreads:
    """Runs long computations in parallel, each on a single thread.

    An alternative to using all threads on every operation. Pays off only for operations that take
    milliseconds each: between two of them a thread needs the GIL. Four threads that each stepped
    16 sentences of a translation, at some 40 µs an operation, did half as much as four on every
    operation.

    Args:
        count: number of CPU threads.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()  # guards the fields below
        self._background: ThreadPoolExecutor | None = None
        self._unfinished = 0  # jobs in the background

    def use(self) -> None:
        """Let torch's operations, as this thread calls them, run on all `count` threads, or on all
        but one while there are jobs in the background."""
        threads = self.count - 1 if self._unfinished and self.count > 1 else self.count
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    def start(self, job: Callable[[], T]) -> Future[T] | None:
        """Run a job on a thread in the background, after those that were started before; None while
        the interpreter ends, when no threads can be started."""
        with self._lock:
            try:
                if self._background is None:
                    background = ThreadPoolExecutor(1, "edgeapp-background")
                    background.submit(_use_one_thread).result()
                    # set_num_threads also changes the default for new threads.
                    torch.set_num_threads(self.count)
                    self._background = background
                future = self._background.submit(_inferring, job)
            except RuntimeError:
                return None
            self._unfinished += 1
        future.add_done_callback(self._count_finished)
        return future

    def _count_finished(self, _: Future[T]) -> None:
        with self._lock:
            self._unfinished -= 1

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run all jobs and return their results in order.

        If jobs fail, the error of the first of them is raised after all have ended.
        """
        if self.count == 1:
            return [job() for job in jobs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="edgeapp-worker")
        futures: list[Future[T]] = []
        try:
            # No threads can be started while the interpreter ends: the rest runs on this one.
            with suppress(RuntimeError):
                for job in jobs:
                    futures.append(self._pool.submit(_single_threaded, job))
            wait(futures)
        finally:  # after Ctrl-C no job may still use what the caller cleans up
            wait(futures)
            torch.set_num_threads(self.count)  # MKL's setting is one for the whole process
        done = [future.result() for future in futures]
        return done + [_inferring(job) for job in jobs[len(futures) :]]


def _single_threaded(job: Callable[[], T]) -> T:
    _use_one_thread()
    return _inferring(job)


def _use_one_thread() -> None:
    # A thread takes the number that was set last, by any thread, when it first asks for it.
    torch.get_num_threads()
    torch.set_num_threads(1)


def _inferring(job: Callable[[], T]) -> T:
    with torch.inference_mode():
        return job()
