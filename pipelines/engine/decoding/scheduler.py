"""The scheduler: decides what is computed next, for every loaded model and every caller.

It has no thread of its own: whoever waits for news computes the next step, for all rows of a
batch alike. So a lone caller pays for no hand-over between threads (on a CPU whose cores all
compute, waking another thread costs more than a step), and several callers never compute side
by side, which would make their thread pools fight for the cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.request_state import RequestState
from pipelines.errors import EngineError

__all__ = ["Scheduler"]

T = TypeVar("T")


class Scheduler:
    """Runs jobs (whole calls, such as encoding) and batches (step by step), one at a time.

    threads: CPU threads to compute with.
    recover: called with a batch whose step ran out of GPU memory; returns True when the batch
    can go on (elsewhere), False to let its rows fail.
    """

    def __init__(self, threads: int, recover: Callable[[Batch], bool]) -> None:
        self._threads = threads
        self._recover = recover
        self._news = threading.Condition()
        self._busy = False
        self._owner: int | None = None
        self._jobs_waiting = 0
        self._batches: list[Batch] = []

    def run(self, job: Callable[[], T]) -> T:
        """Do `job` between two steps, before any further step, and return what it returns."""
        if self._owner == threading.get_ident():
            return job()
        with self._news:
            self._jobs_waiting += 1
            try:
                self._news.wait_for(lambda: not self._busy)
                self._busy = True
            finally:
                self._jobs_waiting -= 1
        with self._computing():
            return job()

    def recover(self, batch: Batch) -> bool:
        """After a job that ran out of GPU memory: whether it can be done again (elsewhere)."""
        return self.run(lambda: self._recover(batch))

    def submit(self, batch: Batch, state: RequestState) -> None:
        """Let a row take part in the steps to come."""
        with self._news:
            if batch not in self._batches:
                self._batches.append(batch)
            batch.add(state)

    def wait(self, state: RequestState) -> None:
        """Return once the row has news, computing steps as long as nobody else does."""
        while not state.has_events:
            with self._news:
                self._news.wait_for(
                    lambda: state.has_events or not (self._busy or self._jobs_waiting)
                )
                if state.has_events:
                    return
                self._busy = True
            with self._computing():
                self._step()

    def close(self) -> None:
        """Fail all rows that have not ended."""

        def give_up() -> None:
            for batch in self._batches:
                batch.fail(EngineError("the engine was closed before the generation ended"))
            self._batches.clear()

        self.run(give_up)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """What surrounds every computation; the caller has set `_busy`."""
        self._owner = threading.get_ident()
        try:
            if torch.get_num_threads() != self._threads:
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                yield
        finally:
            with self._news:
                self._busy, self._owner = False, None
                self._news.notify_all()

    def _step(self) -> None:
        """One step of the batch with the most urgent row; equally urgent batches take turns.
        One that waits for memory which others hold lets them go first."""
        with self._news:
            self._batches = [batch for batch in self._batches if len(batch)]
            assert self._batches, "somebody waits for a row that is in no batch"
            order = sorted(self._batches, key=lambda b: b.priority)
        for batch in order:
            if self._step_of(batch):
                return

    def _step_of(self, batch: Batch) -> bool:
        """Whether the batch could do anything."""
        with self._news:
            if batch not in self._batches:  # it has been closed meanwhile
                return True
            self._batches.remove(batch)
            self._batches.append(batch)
        try:
            return batch.step()
        except torch.cuda.OutOfMemoryError as error:
            if not self._recover(batch):
                batch.fail(EngineError(f"out of memory while generating: {error}"))
        except Exception as error:  # whatever it is, every waiting caller must hear of it
            failure = EngineError(f"generation failed: {error}")
            failure.__cause__ = error
            batch.fail(failure)
        except BaseException:
            batch.restart()  # Ctrl-C in one caller's step must not cost the others their rows
            raise
        return True
