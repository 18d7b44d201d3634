"""The scheduler: decides what is computed next, for all loaded models and all callers.

It has no thread of its own. A caller that waits for an event computes the next step itself, for all
requests of a batch. So a single caller pays for no hand-over between threads (on a CPU whose cores
are all computing, waking another thread costs more than a step), and several callers never compute
at the same time, which would make their thread pools compete for the cores.
"""

from __future__ import annotations

import threading
from collections import deque
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

    Args:
        threads: CPU threads to compute with.
        recover: Called with a batch whose step ran out of GPU memory. Returns True when its
            requests go on, on another device, and False to let them fail.
    """

    def __init__(self, threads: int, recover: Callable[[Batch], bool]) -> None:
        self._threads = threads
        self._recover = recover
        # Guards all fields below; notified when a computation is over.
        self._condition = threading.Condition()
        self._busy = False
        self._computing_thread: int | None = None
        self._jobs: deque[object] = deque()  # those that wait; no step begins while there are any
        self._batches: list[Batch] = []
        self._closed = False

    def check_open(self) -> None:
        """Raise EngineError if the scheduler was closed."""
        if self._closed:
            raise EngineError("the engine was closed; make a new one")

    def run(self, job: Callable[[], T]) -> T:
        """Run `job` between two steps, ahead of all further steps, and return its result.

        Jobs run in the order of their calls, so that one waits for a single job of a caller that
        runs many. A job called from within a job or step runs at once.
        """
        if self._computing_thread == threading.get_ident():
            return job()
        place = object()
        with self._condition:
            self._jobs.append(place)
            try:
                self._condition.wait_for(lambda: not self._busy and self._jobs[0] is place)
                self._busy = True
            finally:
                self._jobs.remove(place)
                self._condition.notify_all()  # an interrupted wait must not hold up the others
        with self._computing():
            return job()

    def give_way(self, priority: int) -> None:
        """Compute steps while there are requests more urgent than `priority`, and no job waits.

        For callers that divide a long job, between its parts. Within a job or step it does nothing.
        """
        if self._computing_thread == threading.get_ident():
            return
        progress = True
        while progress:
            with self._condition:
                self._condition.wait_for(lambda: not self._busy)
                if self._jobs or not self.has_urgent(priority):
                    return
                self._busy = True
            with self._computing():
                progress = self._step()

    def has_urgent(self, priority: int) -> bool:
        """Whether there are requests more urgent than `priority`."""
        with self._condition:
            return any(len(batch) and batch.priority < priority for batch in self._batches)

    def recover(self, batch: Batch) -> bool:
        """Recover from a job that ran out of GPU memory; returns whether to run it again."""
        return self.run(lambda: self._recover(batch))

    def submit(self, current_batch: Callable[[], Batch], state: RequestState) -> None:
        """Add a request to a batch; it joins before the next step that has room for it.

        Args:
            current_batch: The model's batch. It is asked here, so that `without_submissions`
                can replace it.
            state: The request.

        Raises:
            EngineError: The scheduler was closed, or the model was unloaded.
        """
        with self._condition:
            self.check_open()
            batch = current_batch()
            if batch not in self._batches:
                self._batches.append(batch)
            batch.add(state)

    @contextmanager
    def without_submissions(self) -> Iterator[None]:
        """A context in which no request is added: for a model that changes its batch."""
        with self._condition:
            yield

    def wait(self, state: RequestState) -> None:
        """Return once the request has events; compute steps unless another thread does."""
        while not state.has_events:
            with self._condition:
                self._condition.wait_for(lambda: state.has_events or not (self._busy or self._jobs))
                if state.has_events:
                    return
                self._busy = True
            with self._computing():
                self._step()

    def close(self) -> None:
        """Fail all requests that have not ended, and accept no more."""

        def fail_all() -> None:
            with self._condition:
                self._closed = True
            for batch in self._batches:
                batch.fail(EngineError("the engine was closed before the generation ended"))
            self._batches.clear()

        self.run(fail_all)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """The context of every computation; the caller has set `_busy`."""
        self._computing_thread = threading.get_ident()
        try:
            if torch.get_num_threads() != self._threads:
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                yield
        finally:
            with self._condition:
                self._busy, self._computing_thread = False, None
                self._condition.notify_all()

    def _step(self) -> bool:
        """Step the batch that holds the most urgent request; equally urgent batches take turns.

        A batch that cannot do anything, as it waits for memory that others hold, is skipped.

        Returns:
            Whether any could do anything.
        """
        with self._condition:
            self._batches = [batch for batch in self._batches if len(batch)]
            assert self._batches, "the request that is waited for is in no batch"
            order = sorted(self._batches, key=lambda b: b.priority)
        return any(self._step_batch(batch) for batch in order)

    def _step_batch(self, batch: Batch) -> bool:
        """Step one batch; returns whether it could do anything."""
        with self._condition:
            if batch not in self._batches:  # closed in the meantime
                return True
            self._batches.remove(batch)
            self._batches.append(batch)
        try:
            return batch.step()
        except torch.cuda.OutOfMemoryError as error:
            if not self._recover(batch):
                batch.fail(EngineError(f"out of memory while generating: {error}"))
        except Exception as error:  # every caller that waits on the batch must see it
            failure = EngineError(f"generation failed: {error}")
            failure.__cause__ = error
            batch.fail(failure)
        except BaseException:
            batch.restart()  # Ctrl-C in the step of one caller must not fail the others' requests
            raise
        return True
