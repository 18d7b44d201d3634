"""Runs the real command in a process of its own, with faults around it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.part import Failed
from tests.campaign.sandbox import REPOSITORY

__all__ = ["EDGEAPP", "SAMPLES", "Ended", "run_command"]

EDGEAPP = (sys.executable, "-m", "edgeapp")
SAMPLES = REPOSITORY / "assets" / "samples"


@dataclass(frozen=True)
class Ended:
    """A command that has ended. out, err: b"" where they were not captured."""

    code: int
    out: bytes
    err: bytes

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
