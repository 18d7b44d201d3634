"""The threads that run a kernel together: barrier, division of work, scratch memory of each; and
the words of 32 bits that they share.

Every thread of the team executes the whole kernel, on an argument of its own that differs in
`workspace.thread` only. The thread that has work calls `run`, the others call `join`, which returns
when the team is closed.

A thread that waits polls a word for about the time that falling asleep and being woken takes: tens
of microseconds, on a virtual machine whose core has gone idle. Most waits are shorter. If another
program has taken the core of the one that is waited for, for milliseconds, the thread falls asleep.

All operations on words are sequentially consistent. The functions that sleep are the operating
system's (see system_calls.py): futex on Linux, ulock on macOS, WaitOnAddress on Windows.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.ir import (
    I8,
    I32,
    I64,
    address_of,
    call_intrinsic,
    emitted,
    i64,
    jit,
    teams,
)

_ORDER = "seq_cst"
_POINTER = I8.as_pointer()

# Linux: the number of the system call, by the first part of the target's triple.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
# macOS: compare 32 bits and wait; wake all.
_UL_COMPARE_AND_WAIT, _ULF_WAKE_ALL = 1, 0x100
_ALL = 0x7FFFFFFF
_FOREVER = 0xFFFFFFFF  # of Windows

_ONE = np.int32(1)


@emitted(types.int32, types.int64)
def load_word(b: Any, address: Any) -> Any:
    """The word at an address."""
    return b.load_atomic(address_of(b, address, kind=I32), _ORDER, 4)


@emitted(types.void, types.int64, types.int32)
def store_word(b: Any, address: Any, value: Any) -> None:
    """Replace the word at an address."""
    b.store_atomic(value, address_of(b, address, kind=I32), _ORDER, 4)


@emitted(types.int32, types.int64, types.int32)
def add_to_word(b: Any, address: Any, value: Any) -> Any:
    """Add to the word at an address; returns what it was before."""
    return b.atomic_rmw("add", address_of(b, address, kind=I32), value, _ORDER)


@emitted(types.void)
def pause(b: Any) -> None:
    """Tell the CPU that this thread waits in a loop."""
    name, operands = "llvm.x86.sse2.pause", []
    if not llvm.get_process_triple().startswith("x86_64"):
        # An ARM CPU takes its `yield` for nothing; this one empties the pipeline.
        name, operands = "llvm.aarch64.isb", [ir.Constant(I32, 15)]
    call_intrinsic(b, name, ir.VoidType(), *operands)


def _call(b: Any, symbol: str, *args: Any, result: Any = I32, variadic: bool = False) -> None:
    """Call a function of the system."""
    kinds = [] if variadic else [arg.type for arg in args]
    kind = ir.FunctionType(result, kinds or [args[0].type], var_arg=variadic)
    function = b.module.globals.get(symbol) or ir.Function(b.module, kind, symbol)
    b.call(function, args)


def _emit_sleep(b: Any, address: Any, value: Any) -> None:
    """Sleep while the word at an address has this value, until `wake`, or shorter."""
    machine, _, system = llvm.get_process_triple().partition("-")
    if "linux" in system:
        operation = ir.Constant(I64, _FUTEX_WAIT_PRIVATE)
        number, none = ir.Constant(I64, _FUTEX[machine]), ir.Constant(I64, 0)
        futex = (number, address, operation, b.sext(value, I64), none)
        _call(b, "edgeapp_syscall", *futex, result=I64, variadic=True)
    elif "apple" in system:
        operation, no_limit = ir.Constant(I32, _UL_COMPARE_AND_WAIT), ir.Constant(I32, 0)
        _call(b, "edgeapp_wait", operation, address_of(b, address), b.zext(value, I64), no_limit)
    else:
        compared = cgutils.alloca_once(b, I32)  # not again in each round of a loop
        b.store(value, compared)
        pointers = address_of(b, address), b.bitcast(compared, _POINTER)
        _call(b, "edgeapp_wait", *pointers, ir.Constant(I64, 4), ir.Constant(I32, _FOREVER))


def _emit_wake(b: Any, address: Any) -> None:
    """Wake all threads that sleep at an address."""
    machine, _, system = llvm.get_process_triple().partition("-")
    if "linux" in system:
        operation, number = ir.Constant(I64, _FUTEX_WAKE_PRIVATE), ir.Constant(I64, _FUTEX[machine])
        futex = (number, address, operation, ir.Constant(I64, _ALL))
        _call(b, "edgeapp_syscall", *futex, result=I64, variadic=True)
    elif "apple" in system:
        operation = ir.Constant(I32, _UL_COMPARE_AND_WAIT | _ULF_WAKE_ALL)
        _call(b, "edgeapp_wake", operation, address_of(b, address), ir.Constant(I64, 0))
    else:
        _call(b, "edgeapp_wake", address_of(b, address), result=ir.VoidType())


sleep_while = emitted(types.void, types.int64, types.int32)(_emit_sleep)
wake = emitted(types.void, types.int64)(_emit_wake)


@emitted(types.void, types.int64, types.int64)
def call_kernel(b: Any, kernel: Any, args: Any) -> None:
    """Call the function at an address with one argument, an address."""
    function = address_of(b, kernel, kind=ir.FunctionType(ir.VoidType(), [_POINTER]))
    b.call(function, [address_of(b, args)])


@jit
def spin(word: Any, value: Any, times: Any) -> Any:
    """Poll a word until it has another value, at most so many times; returns its value."""
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
def _add_and_notify(word: Any, value: Any) -> None:
    """Add to a word, and wake those who sleep until it changes."""
    add_to_word(word, value)
    if load_word(word + abi.SLEEPERS) != 0:
        wake(word)


@jit
def _barrier_wait(team: Any, threads: Any) -> None:
    """Return when so many threads have called this."""
    phase, arrived = team + abi.PHASE, team + abi.ARRIVED
    before = load_word(phase)
    if add_to_word(arrived, _ONE) == threads - 1:
        store_word(arrived, np.int32(0))
        _add_and_notify(phase, _ONE)
    else:
        _wait(phase, before, teams(team)[0].spins)


@jit
def barrier(workspace: Any) -> None:
    """Wait for all threads of the team."""
    if workspace.threads > 1:
        _barrier_wait(workspace.team, workspace.threads)


@jit
def run(address: Any, threads: Any) -> None:
    """Run the kernel of a team on so many of its threads, this one among them."""
    team = teams(address)[0]
    job = load_word(address + abi.JOB)
    # The number of the job in the upper bits, that of its threads in the lower ones.
    later = ((job >> abi.THREAD_BITS) + 1 << abi.THREAD_BITS) + threads
    _add_and_notify(address + abi.JOB, np.int32(later - job))
    call_kernel(team.kernel, team.args)
    _barrier_wait(address, threads)


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
            _barrier_wait(address, threads)
            spins = team.spins


@jit
def close(address: Any) -> None:
    """End `join` in all threads of a team that runs nothing: a job of no threads."""
    job = load_word(address + abi.JOB)
    _add_and_notify(address + abi.JOB, np.int32((1 << abi.THREAD_BITS) - (job & abi.MOST_THREADS)))


@jit
def thread_range(workspace: Any, count: Any) -> Any:
    """(first, end) of this thread's contiguous share of `count` tasks."""
    index, threads = workspace.thread, workspace.threads
    return count * index // threads, count * (index + 1) // threads


@jit
def thread_scratch(workspace: Any) -> Any:
    """The address of this thread's scratch buffer."""
    return workspace.scratch + workspace.thread * workspace.scratch_bytes
