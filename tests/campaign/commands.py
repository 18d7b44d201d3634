"""Runs the real command in a process of its own, with faults around it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.campaign.part import Failed
from tests.campaign.sandbox import REPOSITORY

__all__ = ["EDGEAPP", "SAMPLES", "Ended", "run_command", "run_fork"]

EDGEAPP = (sys.executable, "-m", "edgeapp")
SAMPLES = REPOSITORY / "assets" / "samples"
_POLL_S = 0.02


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: Its exit code.
        out: Of stdout; b"" where it was not captured.
        err: Of stderr; likewise.
        signalled: Whether a signal was sent to a fork before its end.
        cpu_s: CPU seconds of a fork.
    """

    code: int
    out: bytes
    err: bytes
    signalled: bool = False
    cpu_s: float = 0.0

    @property
    def said(self) -> str:
        return self.err.decode("utf-8", "replace")


def run_command(
    arguments: Sequence[object],
    folder: Path,
    *,
    stdin: str = "/dev/null",
    stdout: str | None = None,
    stderr: str | None = None,
    closed: Sequence[int] = (),
    before: Callable[[], None] | None = None,
    signals: Sequence[tuple[float, int]] = (),
    environment: dict[str, str] | None = None,
    timeout_s: float = 60.0,
    program: Sequence[str] = EDGEAPP,
) -> Ended:
    """Run `edgeapp`.

    Args:
        arguments: Of the command.
        folder: The working directory; what is captured goes to files in it.
        stdin: A file.
        stdout: A file, such as /dev/full; None: captured.
        stderr: As stdout.
        closed: Descriptors that the process does not have.
        before: Called in the new process, for its limits.
        signals: (seconds after the start, number), in order.
        environment: Variables besides those of this process.
        timeout_s: Wall time, after which it counts as hanging.
        program: What is run with the arguments.

    Raises:
        Failed: It hangs.
    """
    paths = (stdin, stdout or str(folder / ".out"), stderr or str(folder / ".err"))

    def prepare() -> None:
        for number in closed:
            os.close(number)
        if before is not None:
            before()

    began = time.monotonic()
    with ExitStack() as stack:
        files = [
            stack.enter_context(Path(path).open(mode))
            for path, mode in zip(paths, ("rb", "wb", "wb"), strict=True)
        ]
        process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=folder,
            env=os.environ | (environment or {}),
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            preexec_fn=prepare,
        )
    try:
        for at, number in signals:
            try:
                process.wait(max(0.0, at - (time.monotonic() - began)))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(number)
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        said = (folder / ".err").read_text("utf-8", "replace") if stderr is None else ""
        raise Failed(f"hangs for {timeout_s:g} s: {said[-1500:]}") from None
    finally:
        process.kill()
        process.wait()
    out = b"" if stdout else (folder / ".out").read_bytes()
    err = b"" if stderr else (folder / ".err").read_bytes()
    return Ended(code, out, err)


def run_fork(
    arguments: Sequence[str],
    folder: Path,
    *,
    environment: dict[str, str],
    kill: tuple[float, int] | None = None,
    timeout_s: float = 60.0,
) -> Ended:
    """As `run_command`, in a fork of this process, which has imported what the command needs.

    Args:
        arguments: Of the command.
        folder: The working directory.
        environment: Variables besides those of this process.
        kill: (CPU seconds of the fork, number of the signal); on a loaded machine too it comes
            where the work is.
        timeout_s: Wall time, after which it counts as hanging.

    Raises:
        Failed: It hangs.
    """
    until, signalled = time.monotonic() + timeout_s, False
    pid = os.fork()
    if pid == 0:
        _run_and_exit(arguments, folder, environment)
    process = os.pidfd_open(pid)
    try:
        while not select.select([process], [], [], _POLL_S)[0]:
            if kill is not None and not signalled and _cpu_s(pid) >= kill[0]:
                os.kill(pid, kill[1])
                signalled = True
            if time.monotonic() > until:
                said = (folder / ".err").read_text("utf-8", "replace")
                raise Failed(f"hangs for {timeout_s:g} s: {said[-1500:]}")
    finally:
        os.kill(pid, signal.SIGKILL)  # it is a zombie until it is waited for
        _, status, usage = os.wait4(pid, 0)
        os.close(process)
    out, err = ((folder / name).read_bytes() for name in (".out", ".err"))
    cpu_s = usage.ru_utime + usage.ru_stime
    return Ended(os.waitstatus_to_exitcode(status), out, err, signalled, cpu_s)


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run_and_exit(arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> NoReturn:
    code: object = 1
    try:
        os.chdir(folder)
        os.environ.update(environment)
        for name, target in (("/dev/null", 0), (".out", 1), (".err", 2)):
            flags = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), target)
        from edgeapp.cli import main

        main(list(arguments))
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
