"""Children that run a module, forked by a process that has imported it.

Starting Python and importing numpy and PyAV takes 0.2 s of CPU time, more than recognizing a short
recording does; a fork takes some milliseconds. The server has one thread and does nothing else.

    this process ── socket: three descriptors a child ──> server
                                                            │ fork
    this process <── socket: process id, exit code ──── supervisor
                                                            │ fork
    this process <── pipes: stdin, stdout ────────────── child

The supervisor kills its child when this process asks for it or ends, and waits for it: so no
process id is used after it may belong to another process. It needs Linux.
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NoReturn

_NUMBER = struct.Struct("<i")  # a process id, then an exit code


class ForkedChild:
    """A child process, with the part of subprocess.Popen's interface that is needed here.

    Attributes:
        pid: Its process id.
        stdin: Its standard input.
        stdout: Its standard output.
        returncode: As of Popen; None before `wait`.
    """

    def __init__(
        self, pid: int, stdin: IO[bytes], stdout: IO[bytes], control: socket.socket
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._control = control

    def kill(self) -> None:
        """Have it killed. Does nothing once it has ended."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Args:
            timeout: Seconds.

        Returns:
            Its exit code, or minus the number of the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: It has not ended yet.
        """
        if self.returncode is None:
            if timeout is not None and not select.select([self._control], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            # Without a code the supervisor was killed. The child ends when nobody reads its output.
            code = _read_number(self._control)
            self.returncode = -signal.SIGKILL if code is None else code
            self._control.close()
        return self.returncode


class _ForkServer:
    """The server of a module, started with the first child."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._owner = 0  # the process that started it: a fork of that starts its own

    def child(self) -> ForkedChild | None:
        """A new child; None if the server does not answer: the next call starts another one."""
        with self._lock:
            if self._socket is None or self._owner != os.getpid():
                self._start()
            assert self._socket is not None
            child = _request_child(self._socket)
            if child is None:  # the server has died
                self._stop()
            return child

    def _start(self) -> None:
        self._owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._stop)

    def _stop(self) -> None:
        if self._socket is None or self._process is None or self._owner != os.getpid():
            return
        atexit.unregister(self._stop)
        with suppress(OSError):  # the server has died
            # At which the server ends, even if a fork of this process has the socket too.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.wait()
        self._socket = self._process = None


_servers: dict[str, _ForkServer] = {}


def fork_child(
    module: str, preload: Sequence[str], environment: Mapping[str, str]
) -> ForkedChild | None:
    """A child that runs the function `main` of a module.

    Args:
        module: Its name. It is imported once, by the first call, as is what it imports.
        preload: Names of modules that are imported beside it.
        environment: Of the process that imports them.

    Returns:
        The child; None where none can be forked: then it has to be started as a process.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(socket, "send_fds"):
        return None
    if module not in _servers:
        # -P: a module in the working directory must not shadow a library.
        command = [sys.executable, "-P", "-m", __name__, module, *preload]
        _servers.setdefault(module, _ForkServer(command, dict(environment)))
    server = _servers[module]
    try:
        return server.child() or server.child()
    except OSError:  # no descriptors or no memory, or a system that forbids it
        return None


def _request_child(server: socket.socket) -> ForkedChild | None:
    """Ask the server for a child; None if the server does not answer."""
    ours, theirs = socket.socketpair()
    stdin_end, stdin = os.pipe()
    stdout, stdout_end = os.pipe()
    try:
        socket.send_fds(server, [b"."], [stdin_end, stdout_end, theirs.fileno()])
        pid = None
    except OSError:
        pid = -1
    finally:
        theirs.close()
        os.close(stdin_end)
        os.close(stdout_end)
    if pid is None:
        pid = _read_number(ours)
    if pid is None or pid < 0:
        ours.close()
        os.close(stdin)
        os.close(stdout)
        return None
    return ForkedChild(pid, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), ours)


def _read_number(control: socket.socket) -> int | None:
    """The next number; None if the other side has ended without one."""
    data = b""
    with suppress(ConnectionError):
        while len(data) < _NUMBER.size:
            block = control.recv(_NUMBER.size - len(data))
            if not block:
                return None
            data += block
    return _NUMBER.unpack(data)[0] if len(data) == _NUMBER.size else None


# --- the server ---


def _serve(requests: socket.socket, run: Callable[[], None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 1, 3)
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            _supervise(run, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _supervise(
    run: Callable[[], None], stdin_end: int, stdout_end: int, control_end: int
) -> NoReturn:
    """Fork the child, wait for its end or for the word to kill it, and report its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(control_end)
        _run(run, stdin_end, stdout_end)
    os.close(stdin_end)
    os.close(stdout_end)
    with suppress(OSError), socket.socket(fileno=control_end) as control:
        ended = os.pidfd_open(pid)
        try:
            control.sendall(_NUMBER.pack(pid))
            waiting: list[Any] = [ended, control]
            if ended not in select.select(waiting, [], [])[0]:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        control.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run(run: Callable[[], None], stdin_end: int, stdout_end: int) -> NoReturn:
    code = 1
    try:
        for descriptor, number in ((stdin_end, 0), (stdout_end, 1)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        run()
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    name, *others, number = sys.argv[1:]
    for other in others:
        importlib.import_module(other)
    _serve(socket.socket(fileno=int(number)), importlib.import_module(name).main)
