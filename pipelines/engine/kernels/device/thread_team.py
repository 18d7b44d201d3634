"""The threads that run a kernel together: barrier, division of work, scratch memory of each.

Every thread of the team executes the whole kernel, on an argument of its own that differs in
`workspace.thread` only. The thread that has work calls `run`, the others call `join`, which returns
when the team is closed.

A thread that waits looks at a word again and again, for about the time that falling asleep and
being woken takes: tens of microseconds, on a virtual machine whose core has gone idle. Most waits
are shorter. Where another program has taken the core of the one that is waited for, for
milliseconds, it falls asleep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.views import i64, jit, teams
from pipelines.engine.kernels.device.words import (
    add_to_word,
    call_kernel,
    load_word,
    pause,
    sleep_while,
    store_word,
    wake,
)

_ONE = np.int32(1)


@jit
def spin(word: Any, value: Any, times: Any) -> Any:
    """Look at a word until it has another value, at most so many times; returns its value."""
    now = load_word(word)
    while now == value and times > 0:
        pause()
        now = load_word(word)
        times -= 1
    return now


@jit
def _wait(word: Any, value: Any, times: Any) -> Any:
    """Wait until a word has another value, and return that; see `abi.Team` for the words."""
    now = spin(word, value, times)
    if now != value:
        return now
    sleepers = word + abi.SLEEPERS
    add_to_word(sleepers, _ONE)
    now = load_word(word)
    while now == value:
        sleep_while(word, value)
        now = load_word(word)
    add_to_word(sleepers, -_ONE)
    return now


@jit
def _change(word: Any, value: Any) -> None:
    """Add to a word, and wake those who sleep until it changes."""
    add_to_word(word, value)
    if load_word(word + abi.SLEEPERS) != 0:
        wake(word)


@jit
def _meet(team: Any, threads: Any) -> None:
    """Return when so many threads have called this."""
    phase, arrived = team + abi.PHASE, team + abi.ARRIVED
    before = load_word(phase)
    if add_to_word(arrived, _ONE) == threads - 1:
        store_word(arrived, np.int32(0))
        _change(phase, _ONE)
    else:
        _wait(phase, before, teams(team)[0].spins)


@jit
def barrier(workspace: Any) -> None:
    """Wait for all threads of the team."""
    if workspace.threads > 1:
        _meet(workspace.team, workspace.threads)


@jit
def run(address: Any, threads: Any) -> None:
    """Run the kernel of a team on so many of its threads, this one among them."""
    team = teams(address)[0]
    job = load_word(address + abi.JOB)
    # The number of the job in the upper bits, that of its threads in the lower ones.
    later = ((job >> abi.THREAD_BITS) + 1 << abi.THREAD_BITS) + threads
    _change(address + abi.JOB, np.int32(later - job))
    call_kernel(team.kernel, team.args)
    _meet(address, threads)


@jit
def join(address: Any, thread: Any, own_args: Any, job: Any) -> None:
    """Run kernels with others, until the team is closed.

    thread: the number of this thread, 1 or more. own_args: a buffer for the kernel's argument.
    job: the last job that this thread has no part in.
    """
    team, spins = teams(address)[0], 0
    job = np.int32(job)
    while True:
        job = _wait(address + abi.JOB, job, spins)
        threads = job & abi.MOST_THREADS
        if threads == 0:
            return
        spins = 0
        if thread < threads:
            source, target = i64(team.args), i64(own_args)
            for i in range(team.args_bytes // 8):
                target[i] = source[i]
            target[abi.THREAD_FIELD] = thread
            call_kernel(team.kernel, own_args)
            _meet(address, threads)
            spins = team.spins


@jit
def close(address: Any) -> None:
    """End `join` in all threads of a team that runs nothing: a job of no threads."""
    job = load_word(address + abi.JOB)
    _change(address + abi.JOB, np.int32((1 << abi.THREAD_BITS) - (job & abi.MOST_THREADS)))


@jit
def thread_range(workspace: Any, count: Any) -> Any:
    """(first, end) of this thread's contiguous share of `count` tasks."""
    index, threads = workspace.thread, workspace.threads
    return count * index // threads, count * (index + 1) // threads


@jit
def thread_scratch(workspace: Any) -> Any:
    """The address of this thread's scratch buffer."""
    return workspace.scratch + workspace.thread * workspace.scratch_bytes
