"""How many threads run a kernel: all, or one while other programs hold the cores.

A kernel has a barrier after every stage, so a thread that has lost its core holds up all others.
One thread that goes on alone is then faster than two of which one waits. Which it is cannot be told
from the machine's load, and changes while a recording is transcribed; so both are timed. Results do
not depend on the number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import ClassVar

import torch

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.library import KernelLibrary

# A trial of the other size is so many calls or seconds long, whichever is over first.
_TRIAL, _TRIAL_S = 6, 0.1
# The next one comes after so many calls, and twice as many after each that is lost, or after so
# many seconds if that is sooner and these calls have taken twenty times what the last trial has
# lost, up to so many seconds.
_SOONEST, _LATEST, _LATEST_S = 48, 768, 2.0
_PER_LOSS, _LONGEST_S = 20.0, 10.0
# The first trial of all threads comes after so many calls; that of one thread takes as long as a
# call for each of the others, and comes after so many calls for each, unless all are held up.
_FIRST = 4
# All threads have been held up if their mean is that much above their best time. They are given up
# only for one that takes that much less: the means of a few calls are not exact.
_HELD_UP, _CLEARLY = 1.2, 0.85
_WEIGHT = 1 / 16  # of a new time in the mean
_BEST_GROWS = 1.002  # the best time is forgotten slowly: a step over more positions takes longer


class TeamSize:
    """The choice between all threads and one, for calls of one kernel with about equal work; the
    first choice is one thread if `alone`. Not to be used by several threads at a time."""

    def __init__(self, alone: bool = False, threads: int = 2) -> None:
        self._choice = alone  # during a trial the other one is used
        self._mean = 0.0  # seconds a row, of the choice
        self._best = 0.0  # of all threads; 0: unknown
        self._other = math.inf  # mean of the other one, as the last trial has found it
        self._calls, self._seconds = 0, 0.0  # of calls, since the last trial or in this one
        self._decided_s = 0.0  # when the last trial ended
        self._wait = _FIRST if alone else _FIRST * (threads - 1)  # calls until the next one
        self._pause_s = 0.0  # seconds of calls, which it does not come before if they are fewer
        self._trial: list[float] | None = None

    @property
    def choice(self) -> bool:
        """Whether one thread is faster, by what is known."""
        return self._choice

    @property
    def alone(self) -> bool:
        """Whether one thread is to run the next call."""
        return self._choice if self._trial is None else not self._choice

    def record(self, began_s: float, ended_s: float, rows: int = 1) -> None:
        """Take note of the time and the rows of the call that `alone` was asked for."""
        seconds = ended_s - began_s
        by_row = seconds / rows
        if not self.alone:
            self._best = min(by_row, self._best * _BEST_GROWS) if self._best else by_row
        self._calls += 1
        self._seconds += seconds
        if self._trial is None:
            self._mean += (by_row - self._mean) * self._weight
            if self._may_be_wrong(ended_s):
                self._trial, self._calls, self._seconds = [], 0, 0.0
            return
        self._trial.append(by_row)
        total = sum(self._trial)
        if self._calls == _TRIAL or self._seconds >= _TRIAL_S:
            self._decide(total / self._calls, ended_s)
        elif total > _TRIAL * self._limit:  # it is lost already
            self._decide(total / _TRIAL, ended_s)

    @property
    def _tried(self) -> bool:
        return self._other < math.inf

    @property
    def _weight(self) -> float:
        """Of the latest time in the mean. The first call of all, which starts threads and reads the
        weights from memory, does not count."""
        return _WEIGHT if self._tried else max(_WEIGHT, 1 / max(1, self._calls - 1))

    @property
    def _limit(self) -> float:
        """What the mean of the other one has to be below."""
        return self._mean * (1.0 if self._choice else _CLEARLY)

    def _may_be_wrong(self, now_s: float) -> bool:
        if self._calls < _FIRST:
            return False
        held_up = self._mean > _HELD_UP * self._best
        waited = self._calls >= self._wait
        if not self._tried:
            return waited or held_up
        if self._other < self._limit:  # the load has changed since the last trial
            return True
        late = now_s >= self._decided_s + _LATEST_S and self._seconds >= self._pause_s
        return (waited or late) and (self._choice or held_up)

    def _decide(self, other: float, now_s: float) -> None:
        """Keep what is faster. other: mean of the trial, or what it is above."""
        self._decided_s = now_s
        if other < self._limit:
            self._choice, self._mean, self._other = not self._choice, other, self._mean
            self._wait, self._pause_s = _SOONEST, 0.0
        else:
            self._other, self._wait = other, min(max(_SOONEST, 2 * self._wait), _LATEST)
            lost_s = self._seconds * (1 - self._mean / other) if other else 0.0  # a coarse clock
            self._pause_s = min(_PER_LOSS * lost_s, _LONGEST_S)
        self._trial, self._calls, self._seconds = None, 0, 0.0


class KernelRunner:
    """Runs a kernel, always with the same weights, on as many threads as torch's operations, or on
    one while that is faster."""

    _last: ClassVar[TeamSize] = TeamSize()  # that of the last call: the load is the machine's

    def __init__(
        self, library: KernelLibrary, kernel: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._library, self._kernel, self._clock = library, kernel, clock
        self._sizes: dict[int, TeamSize] = {}  # by rows, in powers of 2

    @property
    def threads(self) -> int:
        """At most so many threads run it: as many as torch's operations, a number that the
        scheduler sets (model/threads.py)."""
        return torch.get_num_threads()

    def run(self, args: abi.LinearArgs | abi.StackArgs, rows: int) -> None:
        """Run the kernel on so many rows, as `KernelLibrary.run`; return when it is done."""
        threads = self.threads
        if threads == 1 or rows == 0:
            self._library.run(self._kernel, args, 1)
            return
        size = self._sizes.get(rows.bit_length())
        if size is None:  # it begins with what the last one has found
            size = self._sizes[rows.bit_length()] = TeamSize(KernelRunner._last.choice, threads)
        KernelRunner._last = size
        began = self._clock()
        self._library.run(self._kernel, args, 1 if size.alone else threads)
        size.record(began, self._clock(), rows)
