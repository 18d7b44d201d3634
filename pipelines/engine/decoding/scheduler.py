"""The scheduler: decides what is computed next, for all loaded models and all callers.

It has no thread of its own. A caller that waits for an event computes the next step itself, for all
requests of a batch. So a single caller pays for no hand-over between threads (on a CPU whose cores
are all computing, waking another thread costs more than a step), and several callers never compute
at the same time, which would make their thread pools compete for the cores.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from pipelines.daemon_threads import user_of_library
from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import EngineError

T = TypeVar("T")

# How often a waiting thread looks, in case that Ctrl-C came between the end of a computation and
# the notification of those that wait for it.
_LOOK_S = 1.0


class _Turn:
    """The turn of one thread to compute, from before it waits for it until it has ended.

    `ended` is set by one assignment in a `finally`, before which no Ctrl-C can come, so that a
    turn never outlives its call.
    """

    def __init__(self) -> None:
        self.thread, self.ended = threading.get_ident(), False


class Scheduler:
    """Runs jobs (whole calls, such as encoding) and batches (step by step), one at a time.

    Args:
        threads: The CPU threads to compute with.
        recover: Called with a batch whose step ran out of GPU memory. Returns True when its
            requests go on, on another device, and False to let them fail.
    """

    def __init__(self, threads: ComputeThreads, recover: Callable[[Batch], bool]) -> None:
        self.threads = threads
        self._recover = recover
        # Guards all fields below; notified when a turn has ended.
        self._condition = threading.Condition()
        self._computing: _Turn | None = None
        self._jobs: deque[_Turn] = deque()  # those that wait; no step begins while there are any
        self._batches: list[Batch] = []  # with requests
        self._closed = False
        self._process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made the scheduler, rather than the one that it was forked from."""
        return self._process == os.getpid()

    def check_process(self) -> None:
        """Raise EngineError in a process that was forked from the one that made the scheduler."""
        if not self.is_of_this_process:
            # It lacks the threads of the kernels and of torch, and those that hold locks.
            raise EngineError(
                "a model cannot be used in a fork of the process that loaded it; load it in the "
                'child process, or start that with the "spawn" method'
            )

    def check_open(self) -> None:
        """Raise EngineError if the scheduler was closed, as well as `check_process`."""
        self.check_process()
        if self._closed:
            raise EngineError("the engine was closed; make a new one")

    def run(self, job: Callable[[], T]) -> T:
        """Run `job` between two steps, ahead of all further steps, and return its result.

        Jobs run in the order of their calls, so that one waits for a single job of a caller that
        runs many. A job called from within a job or step runs at once.
        """
        if self._computes_here():
            return job()
        turn = _Turn()
        try:
            with self._condition:
                self._jobs.append(turn)
                self._wait_for(lambda: self._is_idle() and self._next_job() is turn)
                self._jobs.popleft()
                self._computing = turn
            return self._compute(job)
        finally:
            turn.ended = True
            self._notify()

    def give_way(self, priority: int) -> None:
        """Compute steps while there are requests more urgent than `priority`, and no job waits.

        For callers that divide a long job, between its parts. Within a job or step it does nothing.
        """
        if self._computes_here():
            return
        progress = True
        while progress:
            turn = _Turn()
            try:
                with self._condition:
                    self._wait_for(self._is_idle)
                    if self._next_job() is not None or not self.has_urgent(priority):
                        return
                    self._computing = turn
                progress = self._compute(self._step)
            finally:
                turn.ended = True
                self._notify()

    def has_urgent(self, priority: int) -> bool:
        """Whether there are requests more urgent than `priority`."""
        with self._condition:
            urgencies = [batch.priority for batch in self._batches]
        return any(urgency is not None and urgency < priority for urgency in urgencies)

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
            turn = _Turn()
            try:
                with self._condition:
                    self._wait_for(
                        lambda: state.has_events or (self._is_idle() and self._next_job() is None)
                    )
                    if state.has_events:
                        return
                    self._computing = turn
                self._compute(self._step)
            finally:
                turn.ended = True
                self._notify()

    def close(self) -> None:
        """Fail all requests that have not ended, and accept no more."""

        def fail_all() -> None:
            with self._condition:
                self._closed = True
            for batch in self._batches:
                batch.fail(EngineError("the engine was closed before the generation ended"))
            self._batches.clear()

        self.run(fail_all)

    def _is_idle(self) -> bool:
        return self._computing is None or self._computing.ended

    def _computes_here(self) -> bool:
        """Whether this thread is within a job or step."""
        turn = self._computing
        return turn is not None and not turn.ended and turn.thread == threading.get_ident()

    def _next_job(self) -> _Turn | None:
        """The job that waits for the longest time; None if none waits."""
        while self._jobs and self._jobs[0].ended:  # by Ctrl-C
            self._jobs.popleft()
        return self._jobs[0] if self._jobs else None

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Release the lock until a condition holds."""
        while not condition():
            self._condition.wait(_LOOK_S)

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _compute(self, work: Callable[[], T]) -> T:
        """Call a function in this thread's turn."""
        user_of_library()
        self.threads.use()
        with torch.inference_mode():
            result = work()
        with self._condition:  # those that are kept would keep the weights of their models
            self._batches = [batch for batch in self._batches if len(batch)]
        return result

    def _step(self) -> bool:
        """Step the batch that holds the most urgent request; equally urgent batches take turns.

        A batch that waits for memory that others hold is skipped. Returns whether any could do
        anything.
        """
        with self._condition:
            urgencies = [(batch.priority, batch) for batch in self._batches]
        order = [(urgency, batch) for urgency, batch in urgencies if urgency is not None]
        assert order, "the request that is waited for is in no batch"
        order.sort(key=lambda pair: pair[0])
        return any(self._step_batch(batch) for _, batch in order)

    def _step_batch(self, batch: Batch) -> bool:
        """Step one batch; returns whether it could do anything."""
        with self._condition:
            if batch not in self._batches:  # closed in the meantime
                return True
            self._batches = [*(other for other in self._batches if other is not batch), batch]
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
