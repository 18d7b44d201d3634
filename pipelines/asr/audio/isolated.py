"""Decode a file from a stranger in a process of its own, with limits on memory and time.

The parent sends one line of JSON to the child's standard input. The child answers on its standard
output with frames: a kind (1 byte), a length (4 bytes, little-endian), and so many bytes, which
are float32 samples or a JSON message. The last frame is a message of type "done" or "error"; where
it is missing, the child crashed or was killed.

This contains crashes and exhaustion. It is not a sandbox: the child runs as the same user.
"""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from pipelines.asr.audio.arrays import STEP, LoudAudio, SampleBuffer, Samples
from pipelines.asr.audio.decode import DamagedAudio, decode_path
from pipelines.errors import AudioError, LongAudio
from pipelines.notices import collect_notices

__all__ = ["DecodingCancelled", "load_audio_isolated"]

_FRAME = struct.Struct("<cI")  # kind, length of what follows in bytes
_SAMPLES, _MESSAGE = b"S", b"M"
_BLOCK = STEP  # samples in a frame, at most
_LONGEST_MESSAGE = 1 << 16  # bytes
_POLL_S = 0.1  # between two looks at the clock and at `cancelled`
_MB = 1 << 20


class DecodingCancelled(Exception):
    """`cancelled` returned True while a file was decoded."""


def load_audio_isolated(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    longest_s: float | None = None,
    memory_bytes: int = 1 << 30,
    time_s: float = 600.0,
    cancelled: Callable[[], bool] = lambda: False,
    warned: Callable[[str, type[Warning]], None] | None = None,
) -> Samples:
    """As load_audio(path, longest_s), decoded in a child process.

    Args:
        path: an audio or video file.
        name: what errors and warnings call it, which do not tell the path then. Default: the path.
        longest_s: a recording that lasts more seconds is refused.
        memory_bytes: address space of the child, its libraries included (about 300 MB). The
            samples are held by this process and do not count. On Linux only.
        time_s: seconds on the clock after which the child is killed; on Linux seconds of
            processor time too.
        cancelled: asked about ten times a second, from another thread; the child is killed when
            it returns True.
        warned: takes (message, DamagedAudio or LoudAudio). Default: warnings.warn.

    Returns:
        Mono float32 [samples] at 16 kHz.

    Raises:
        AudioError: as load_audio; and when decoding crashes or exceeds its limits.
        LongAudio: the recording is longer than `longest_s`.
        DecodingCancelled: `cancelled` returned True.
    """
    shown = os.fspath(path) if name is None else name
    request = {
        "path": str(Path(path).absolute()),
        "name": shown,
        "longest_s": longest_s,
        "memory_bytes": memory_bytes,
        "time_s": time_s,
    }
    warn = warned or _warn
    buffer = SampleBuffer(shown, longest_s)
    child = _start()
    token_probs = _Watch(child, time_s, cancelled)
    try:
        token_probs.start()
        _send(child, request)
        done = _receive(child, buffer, shown, longest_s, warn)
        if not done:
            raise AudioError(_ending(_code(child), shown, request))
    except AudioError:
        if token_probs.reason == "cancelled" or cancelled():
            raise DecodingCancelled from None
        if token_probs.reason == "time":
            raise AudioError(_too_slow(shown, time_s)) from None
        raise
    finally:
        _end(child)
        token_probs.stop()
    if (said := buffer.loudness_warning()) is not None:
        warn(said, LoudAudio)
    return buffer.finish()


def _warn(message: str, category: type[Warning]) -> None:
    warnings.warn(message, category, stacklevel=4)


def _start() -> subprocess.Popen[bytes]:
    # The child imports what this process would import.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path),
        "OPENBLAS_NUM_THREADS": "1",  # threads that are not used would count as memory
    }
    # -P: a module in the working directory must not take the place of a library.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pipelines.asr.audio.isolated"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _send(child: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # the missing answer says it
        child.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # what was not sent yet
            pipe.close()


class _Watch:
    """Kills a child when its time is over or it is cancelled; `reason` says which."""

    def __init__(
        self, child: subprocess.Popen[bytes], time_s: float, cancelled: Callable[[], bool]
    ) -> None:
        self.reason: str | None = None
        self._child, self._cancelled = child, cancelled
        self._deadline = time.monotonic() + time_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            if self._cancelled():
                self.reason = "cancelled"
            elif time.monotonic() > self._deadline:
                self.reason = "time"
            else:
                continue
            self._child.kill()  # its end of the pipe closes, which ends the reading
            return


def _receive(
    child: subprocess.Popen[bytes],
    buffer: SampleBuffer,
    name: str,
    longest_s: float | None,
    warn: Callable[[str, type[Warning]], None],
) -> bool:
    """Read all frames of a child; whether the last one was there.

    Raises:
        AudioError: what the child reports, LongAudio included.
    """
    assert child.stdout is not None
    for kind, content in _frames(child.stdout):
        if kind == _SAMPLES:
            if len(content) % 4:
                return False
            buffer.append(np.frombuffer(content, "<f4"))
            continue
        try:
            message = json.loads(content)
            said, text, announced_s = (message[key] for key in ("type", "text", "announced_s"))
        except (ValueError, TypeError, KeyError):
            return False
        if said == "done":
            return True
        if said == "warning":
            warn(str(text), DamagedAudio)
        elif isinstance(announced_s, float) and longest_s is not None:
            raise LongAudio.of(name, longest_s, announced_s)
        else:
            raise AudioError(str(text))
    return False


def _frames(pipe: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(kind, content) of each frame that arrived whole and is not longer than it may be."""
    most = {_SAMPLES: 4 * _BLOCK, _MESSAGE: _LONGEST_MESSAGE}
    while len(head := pipe.read(_FRAME.size)) == _FRAME.size:
        kind, length = _FRAME.unpack(head)
        if length > most.get(kind, -1):
            return
        content = pipe.read(length)
        if len(content) < length:
            return
        yield kind, content


def _code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a child that has ended, or breaks the protocol and is killed."""
    try:
        return child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        return 1


def _ending(code: int, name: str, request: dict[str, Any]) -> str:
    """What a child says that ended with this code and without a last message."""
    if sys.platform != "win32":
        if code == -signal.SIGXCPU:
            return _too_slow(name, request["time_s"])
        if code == -signal.SIGKILL:
            return f"{name} was not decoded: the system ended the decoder, for lack of memory maybe"
    return (
        f"{name} cannot be decoded: the decoder crashes on it or runs out of memory; "
        "re-export the recording"
    )


def _too_slow(name: str, time_s: float) -> str:
    return f"{name} takes more than {time_s:g} s to be decoded; re-export or shorten the recording"


# --- the child ---


def _limit(memory_bytes: int, time_s: float) -> None:
    if sys.platform != "linux":
        return
    import resource

    def lower(what: int, soft: int, hard: int) -> None:
        _, most = resource.getrlimit(what)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(what, (soft, hard))

    seconds = max(1, math.ceil(time_s))
    lower(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    lower(resource.RLIMIT_CPU, seconds, seconds + 1)
    lower(resource.RLIMIT_CORE, 0, 0)  # a crash must not leave a recording on the disk


class _Reply:
    """Frames to the parent; samples are sent a megabyte at a time."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def samples(self, block: Samples) -> None:
        for start in range(0, len(block), _BLOCK):
            self._write(_SAMPLES, block[start : start + _BLOCK].astype("<f4").tobytes())

    def message(self, kind: str, text: str = "", announced_s: float | None = None) -> None:
        fields = {"type": kind, "text": text, "announced_s": announced_s}
        self._write(_MESSAGE, json.dumps(fields).encode("ascii"))
        self._pipe.flush()

    def _write(self, kind: bytes, content: bytes) -> None:
        self._pipe.write(_FRAME.pack(kind, len(content)))
        self._pipe.write(content)


def _decode(request: dict[str, Any], reply: _Reply) -> None:
    import av  # noqa: F401  # loaded before the limits, or a low one would look like a broken PyAV

    _limit(request["memory_bytes"], request["time_s"])
    with collect_notices() as notices:
        try:
            for block in decode_path(request["path"], request["name"], request["longest_s"]):
                reply.samples(block)
        except AudioError as error:
            announced_s = error.announced_s if isinstance(error, LongAudio) else None
            reply.message("error", str(error), announced_s)
            return
    for one in notices:
        reply.message("warning", one.message)
    reply.message("done")


def main() -> None:
    """The child: decodes what its standard input asks for."""
    request = json.loads(sys.stdin.readline())
    pipe = os.fdopen(os.dup(1), "wb", buffering=_MB)
    os.dup2(2, 1)  # what a library prints must not come between the frames
    try:
        _decode(request, _Reply(pipe))
    except BrokenPipeError:
        os._exit(1)  # the parent has gone


if __name__ == "__main__":
    main()
