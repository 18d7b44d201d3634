"""Runs a function in a fork with limits on memory, CPU and time."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pipelines.malloc import trim_heap
from tests.campaign.part import Failed, Limits, Skipped

__all__ = ["Result", "run_limited"]

_MAX_FILE_BYTES = 2 << 30
_LAST_LINES = 12  # of a traceback


@dataclass(frozen=True)
class Result:
    """How a case ended.

    Attributes:
        outcome: In a few words.
        failure: What went wrong, "" if nothing did.
        skipped: Why the case could not run, "" if it could.
        seconds: Wall time.
        peak_bytes: The largest resident memory of the fork or of one of its processes.
    """

    outcome: str
    failure: str
    skipped: str
    seconds: float
    peak_bytes: int

    @property
    def kind(self) -> str:
        """The failure without its numbers: two failures of one kind have one cause, probably."""
        last = self.failure.strip().rpartition("\n")[2]
        return "".join(c for c in last if not c.isdigit())[:60]


def run_limited(work: Callable[[Path], str], limits: Limits, root: Path) -> Result:
    """Run a function in a fork, in a session and a working directory of its own.

    Args:
        work: Gets the working directory, returns the outcome.
        limits: Of the fork and of the processes that it starts.
        root: Where the working directory is made; it is deleted afterwards.
    """
    folder = Path(tempfile.mkdtemp(dir=root))
    began = time.monotonic()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    trim_heap()  # else the fork uses what this process has freed, and seems to need none
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, limits, folder, writer)  # does not return
    os.close(writer)
    try:
        answer = _read_line(reader, began + limits.wall_s)
    finally:
        os.close(reader)
        timed_out = time.monotonic() >= began + limits.wall_s
        _, status, usage = _end(pid)
    seconds, peak = time.monotonic() - began, usage.ru_maxrss * 1024
    fields, before = {"outcome": "", "failure": "", "skipped": ""}, peak
    try:
        fields |= json.loads(answer)
        before = int(fields.pop("before"))
    except ValueError:
        fields["failure"] = _ending(status, timed_out, limits, folder)
    grown = peak - before
    if not fields["failure"] and grown > limits.memory_bytes:
        limit = limits.memory_bytes >> 20
        fields["failure"] = f"{grown >> 20} MB of memory, more than {limit}: {fields['outcome']}"
    shutil.rmtree(folder, ignore_errors=True)
    return Result(**fields, seconds=seconds, peak_bytes=peak)


def _read_line(reader: int, deadline: float) -> bytes:
    """The answer of the fork; incomplete if it ended without one or the deadline came."""
    answer = b""
    while not answer.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            break
        block = os.read(reader, 65536)
        if not block:
            break
        answer += block
    return answer


def _end(pid: int) -> tuple[int, int, resource.struct_rusage]:
    """Wait for the fork for a second, then kill it; kill what it started and left behind."""
    deadline = time.monotonic() + 1.0
    while not (ended := os.wait4(pid, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.002)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return ended if ended[0] else os.wait4(pid, 0)


def _ending(status: int, timed_out: bool, limits: Limits, folder: Path) -> str:
    """Why there is no answer, with the last lines that the fork printed."""
    if timed_out:
        reason = f"no answer within {limits.wall_s:g} s"
    elif os.WIFSIGNALED(status):
        reason = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        reason = f"ended without an answer, exit code {os.WEXITSTATUS(status)}"
    said = b""
    with suppress(OSError):
        said = (folder / ".log").read_bytes()[-4000:]
    lines = said.decode(errors="replace").splitlines()[-_LAST_LINES:]
    return "\n".join([*lines, reason])


def _child(work: Callable[[Path], str], limits: Limits, folder: Path, writer: int) -> NoReturn:
    # A fork begins with fewer pages than its parent: those of files are not copied.
    fields: dict[str, object] = {"before": _memory("resident")}
    try:
        os.setsid()
        os.chdir(folder)
        log = os.open(folder / ".log", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable(log)
        _limit(limits)
        fields["outcome"] = work(folder)
    except Failed as error:
        fields["failure"] = str(error)
    except Skipped as error:
        fields["skipped"] = str(error)
    except BaseException:
        fields["failure"] = "\n".join(traceback.format_exc().splitlines()[-_LAST_LINES:])
    finally:
        with suppress(BaseException):
            _write(writer, json.dumps(fields).encode() + b"\n")
        os._exit(0)


def _write(writer: int, content: bytes) -> None:
    while content:
        content = content[os.write(writer, content) :]


def _limit(limits: Limits) -> None:
    used = _memory("virtual")
    for limit, value in (
        (resource.RLIMIT_AS, used + limits.address_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def _memory(kind: str) -> int:
    """Bytes of memory of this process: "virtual" or "resident"."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return int(fields[kind == "resident"]) * resource.getpagesize()
