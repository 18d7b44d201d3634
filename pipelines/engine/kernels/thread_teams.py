"""The threads that kernels run on, other than the one that calls.

They are Python threads, which every system has, that spend their time in compiled code: in
`team_join` (device/entry_points.py), without Python's lock. torch's operations have threads of
their own, which sleep between operations (`pipelines.openmp`), so the two do not take each other's
cores.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from pipelines.daemon_threads import stop_daemon_threads_at_exit
from pipelines.engine.kernels import abi

# How long a thread looks for a change before it sleeps: about what being woken takes.
_SPIN_S = 50e-6
# So many looks are timed, so often.
_TIMED_SPINS, _TIMINGS = 2000, 5

_Call1 = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_Call2 = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_Call4 = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


@dataclass(frozen=True)
class TeamFunctions:
    """The addresses of the compiled functions of device/entry_points.py."""

    team_run: int
    team_join: int
    team_close: int
    team_spin: int


class ThreadTeams:
    """Runs kernels on several threads; calls from several threads run side by side.

    Each call has a team of its own, which is kept for later calls. `code`, which owns the memory of
    compiled code, is kept alive.
    """

    def __init__(self, functions: TeamFunctions, code: Any) -> None:
        self._functions, self._code = functions, code
        self._idle: list[_Team] = []
        self._spins = 0  # of a thread before it sleeps; 0: not timed yet
        atexit.register(self._close)
        stop_daemon_threads_at_exit()  # the teams of their calls are idle then
        if hasattr(os, "register_at_fork"):  # a child process has none of the threads
            os.register_at_fork(after_in_child=self._idle.clear)

    def run(self, kernel: int, args: abi.LinearArgs | abi.StackArgs, threads: int) -> None:
        """Run the kernel at an address; return when it is done.

        threads: 2 or more, this one among them; fewer run it where there are no more.
        """
        try:
            team = self._idle.pop()
        except IndexError:
            self._spins = self._spins or self._count_spins()
            team = _Team(self._functions, self._spins)
        try:
            team.run(kernel, args, threads)
        except BaseException:  # Ctrl-C, maybe while a thread was started: not to be used again
            team.close()
            raise
        self._idle.append(team)

    def _count_spins(self) -> int:
        """How many looks at a word take `_SPIN_S` on this machine."""
        spin, word = _Call2(self._functions.team_spin), ctypes.c_int64()
        best_s = float("inf")
        for _ in range(_TIMINGS):
            began = time.perf_counter()
            spin(ctypes.addressof(word), _TIMED_SPINS)
            best_s = min(best_s, time.perf_counter() - began)
        return max(1, round(_TIMED_SPINS * _SPIN_S / best_s))

    def _close(self) -> None:
        """End the threads that run nothing."""
        while True:
            try:
                team = self._idle.pop()
            except IndexError:
                return
            team.close()
            team.join()


class _Team:
    """Some threads that run one kernel at a time, together with the one that calls."""

    def __init__(self, functions: TeamFunctions, spins: int) -> None:
        self._run, self._join = _Call2(functions.team_run), _Call4(functions.team_join)
        self._close = _Call1(functions.team_close)
        self._memory = ctypes.create_string_buffer(abi.TEAM_BYTES + abi.CACHE_LINE_BYTES)
        self._address = ctypes.addressof(self._memory)
        self._address += -self._address % abi.CACHE_LINE_BYTES
        self._fields = abi.Team.from_address(self._address)
        self._fields.spins = spins
        self._threads: list[threading.Thread] = []

    def run(self, kernel: int, args: abi.LinearArgs | abi.StackArgs, threads: int) -> None:
        threads = self._grow(threads)
        fields, workspace = self._fields, args.workspace
        fields.kernel, fields.args = kernel, ctypes.addressof(args)
        fields.args_bytes = ctypes.sizeof(args)
        workspace.team, workspace.thread, workspace.threads = self._address, 0, threads
        self._run(self._address, threads)

    def _grow(self, threads: int) -> int:
        """Start threads until there are so many, with the one that calls.

        Returns:
            The number that there are: fewer if the system has no more, or a job's word.
        """
        threads = min(threads, abi.MOST_THREADS)
        for number in range(len(self._threads) + 1, threads):
            job = ctypes.c_int32.from_address(self._address + abi.JOB).value
            own_args = ctypes.create_string_buffer(ctypes.sizeof(abi.StackArgs))
            thread = threading.Thread(
                target=self._work,
                args=(number, own_args, job),
                name=f"edgeapp-kernel-{number}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:
                return number
            self._threads.append(thread)
        return threads

    def _work(self, number: int, own_args: Any, job: int) -> None:
        self._join(self._address, number, ctypes.addressof(own_args), job)

    def close(self) -> None:
        """Let the threads end, while they run nothing."""
        self._close(self._address)

    def join(self) -> None:
        """Wait until they have ended."""
        for thread in self._threads:
            thread.join()
