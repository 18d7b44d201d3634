"""Decodes an untrusted file in a child process with limits on memory and time.

Protocol: the parent writes one line of JSON to the child's stdin. The child writes frames to its
stdout: a kind (1 byte), a length (4 bytes, little-endian) and a payload of that many bytes, either
float32 samples or a JSON message. The last frame is a message of type "done" or "error"; if it is
missing, the child crashed or was killed.

This contains crashes and resource exhaustion. It is not a sandbox: the child runs as the same user.
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
from typing import IO, Any, Protocol

import numpy as np

from pipelines.asr.audio.arrays import MAX_BLOCK, LoudAudio, SampleBuffer, Samples
from pipelines.asr.audio.decode import DamagedAudio, decode_path
from pipelines.asr.audio.fork_server import fork_child
from pipelines.errors import AudioError, LongAudio
from pipelines.notices import collect_notices

_MODULE = "pipelines.asr.audio.isolated"
_HEADER = struct.Struct("<cI")  # kind, length of the payload in bytes
_SAMPLES, _PAIRS, _MESSAGE = b"S", b"P", b"M"
_MAX_MESSAGE_BYTES = 1 << 16
_POLL_S = 0.1  # between two checks of the clock and of `cancelled`
_PIPE_BUFFER_BYTES = 1 << 20


class DecodingCancelled(Exception):
    """`cancelled` returned True while a file was being decoded."""


def load_audio_isolated(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    max_duration_s: float | None = None,
    memory_bytes: int = 1 << 30,
    time_s: float = 600.0,
    cancelled: Callable[[], bool] = lambda: False,
    warned: Callable[[str, type[Warning]], None] | None = None,
    keep_unlike: bool = False,
) -> Samples:
    """load_audio(path, max_duration_s, keep_unlike=keep_unlike) in a child process.

    Args:
        path: an audio or video file.
        name: the file's name in errors and warnings, which then do not reveal the path.
            Default: the path.
        max_duration_s: maximum duration (s); None: unlimited.
        memory_bytes: limit of the child's address space, including its libraries (about 300 MB).
            The samples are held by this process and do not count. Linux only.
        time_s: wall-clock seconds after which the child is killed; on Linux also the limit of its
            CPU time.
        cancelled: called about ten times a second, from another thread; the child is killed when
            it returns True.
        warned: called with (message, DamagedAudio or LoudAudio). Default: warnings.warn.
        keep_unlike: as for load_audio.

    Returns:
        As load_audio: mono float32 [samples] at 16 kHz, or two channels [samples, 2].

    Raises:
        AudioError: as load_audio; also if decoding crashes or exceeds its limits.
        LongAudio: the recording is longer than `max_duration_s`.
        DecodingCancelled: `cancelled` returned True.
    """
    display_name = os.fspath(path) if name is None else name
    request = {
        "path": str(Path(path).absolute()),
        "name": display_name,
        "max_duration_s": max_duration_s,
        "memory_bytes": memory_bytes,
        "time_s": time_s,
        "keep_unlike": keep_unlike,
    }
    warn = warned or _warn
    buffer = SampleBuffer(display_name, max_duration_s)
    child = _start_child()
    watchdog = _Watchdog(child, time_s, cancelled)
    try:
        watchdog.start()
        _send(child, request)
        done = _receive(child, buffer, display_name, max_duration_s, warn)
        if not done:
            raise AudioError(_crash_message(_exit_code(child), display_name, request))
    except AudioError:
        if watchdog.reason == "cancelled" or cancelled():
            raise DecodingCancelled from None
        if watchdog.reason == "time":
            raise AudioError(_timeout_message(display_name, time_s)) from None
        raise
    finally:
        _end_child(child)
        watchdog.stop()
    if (message := buffer.loudness_warning()) is not None:
        warn(message, LoudAudio)
    return buffer.finish()


def _warn(message: str, category: type[Warning]) -> None:
    warnings.warn(message, category, stacklevel=4)


class _Child(Protocol):
    """A child process: a ForkedChild or a Popen."""

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def _start_child() -> _Child:
    # The child imports from the same folders as this process.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path),
        "OPENBLAS_NUM_THREADS": "1",  # idle threads would count towards the memory limit
    }
    if (child := fork_child(_MODULE, ["av"], environment)) is not None:
        return child
    # -P: a module in the working directory must not shadow a library.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _send(child: _Child, request: dict[str, Any]) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # the missing answer reports it
        child.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        child.stdin.flush()


def _end_child(child: _Child) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # data that was not sent
            pipe.close()


class _Watchdog:
    """Thread that kills a child on timeout or cancellation.

    Attributes:
        reason: "time" or "cancelled" if it killed the child, else None.
    """

    def __init__(self, child: _Child, time_s: float, cancelled: Callable[[], bool]) -> None:
        self.reason: str | None = None
        self._child, self._cancelled = child, cancelled
        self._deadline = time.monotonic() + time_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_S):
            if self._cancelled():
                self.reason = "cancelled"
            elif time.monotonic() > self._deadline:
                self.reason = "time"
            else:
                continue
            self._child.kill()  # this closes its end of the pipe, which ends _receive
            return


def _receive(
    child: _Child,
    buffer: SampleBuffer,
    name: str,
    max_duration_s: float | None,
    warn: Callable[[str, type[Warning]], None],
) -> bool:
    """Read the child's samples into `buffer`, up to its last frame.

    Returns:
        Whether the child finished; False if it ended early or broke the protocol.

    Raises:
        AudioError: the error that the child reports, or LongAudio.
    """
    assert child.stdout is not None
    for kind, payload in _frames(child.stdout):
        if kind == _SAMPLES:
            if len(payload) % 4:
                return False
            buffer.append(np.frombuffer(payload, "<f4"))
            continue
        if kind == _PAIRS:
            if len(payload) % 8:
                return False
            buffer.append(np.frombuffer(payload, "<f4").reshape(-1, 2))
            continue
        try:
            message = json.loads(payload)
            type_, text, announced_s = (message[key] for key in ("type", "text", "announced_s"))
        except (ValueError, TypeError, KeyError):
            return False
        if type_ == "done":
            return True
        if type_ == "warning":
            warn(str(text), DamagedAudio)
        elif isinstance(announced_s, float) and max_duration_s is not None:
            raise LongAudio.of(name, max_duration_s, announced_s)
        else:
            raise AudioError(str(text))
    return False


def _frames(pipe: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(kind, payload) of each frame, up to the first that is incomplete, unknown or too long."""
    max_bytes = {
        _SAMPLES: 4 * MAX_BLOCK,
        _PAIRS: 8 * MAX_BLOCK,
        _MESSAGE: _MAX_MESSAGE_BYTES,
    }
    while len(header := pipe.read(_HEADER.size)) == _HEADER.size:
        kind, length = _HEADER.unpack(header)
        if length > max_bytes.get(kind, -1):
            return
        payload = pipe.read(length)
        if len(payload) < length:
            return
        yield kind, payload


def _exit_code(child: _Child) -> int:
    """The child's exit code; 1 if it does not end within a second and is killed."""
    try:
        return child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        return 1


def _crash_message(code: int, name: str, request: dict[str, Any]) -> str:
    """The error message for a child that ended with this exit code and without a last frame."""
    if sys.platform != "win32":
        if code == -signal.SIGXCPU:
            return _timeout_message(name, request["time_s"])
        if code == -signal.SIGKILL:
            return f"{name} was not decoded: the system ended the decoder, probably out of memory"
    return (
        f"{name} cannot be decoded: the decoder crashes on it or runs out of memory; "
        "re-export the recording"
    )


def _timeout_message(name: str, time_s: float) -> str:
    return f"{name} takes more than {time_s:g} s to be decoded; re-export or shorten the recording"


# --- the child ---


def _limit(memory_bytes: int, time_s: float) -> None:
    """Limit the address space and CPU time of this process and disable core dumps (Linux)."""
    if sys.platform != "linux":
        return
    import resource

    def lower(limit: int, soft: int, hard: int) -> None:
        _, current_hard = resource.getrlimit(limit)
        if current_hard != resource.RLIM_INFINITY:
            soft, hard = min(soft, current_hard), min(hard, current_hard)
        resource.setrlimit(limit, (soft, hard))

    seconds = max(1, math.ceil(time_s))
    lower(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    lower(resource.RLIMIT_CPU, seconds, seconds + 1)
    lower(resource.RLIMIT_CORE, 0, 0)  # a core dump would leave the recording on the disk


class _FrameWriter:
    """Writes frames to the parent."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def samples(self, block: Samples) -> None:
        for start in range(0, len(block), MAX_BLOCK):
            kind = _SAMPLES if block.ndim == 1 else _PAIRS
            self._write(kind, block[start : start + MAX_BLOCK].astype("<f4").tobytes())

    def message(self, type_: str, text: str = "", announced_s: float | None = None) -> None:
        fields = {"type": type_, "text": text, "announced_s": announced_s}
        self._write(_MESSAGE, json.dumps(fields).encode("ascii"))
        self._pipe.flush()

    def _write(self, kind: bytes, payload: bytes) -> None:
        self._pipe.write(_HEADER.pack(kind, len(payload)))
        self._pipe.write(payload)


def _decode(request: dict[str, Any], writer: _FrameWriter) -> None:
    # Imported before the limits are set: under a low limit the import itself would fail.
    import av  # noqa: F401

    _limit(request["memory_bytes"], request["time_s"])
    with collect_notices() as notices:
        try:
            path, name, keep_unlike = (request[key] for key in ("path", "name", "keep_unlike"))
            longest_s = request["max_duration_s"]
            for block in decode_path(path, name, longest_s, keep_unlike=keep_unlike):
                writer.samples(block)
        except AudioError as error:
            announced_s = error.announced_s if isinstance(error, LongAudio) else None
            writer.message("error", str(error), announced_s)
            return
    for warning in notices:
        writer.message("warning", warning.message)
    writer.message("done")


def main() -> None:
    """The child: decodes the file that the request on its stdin names."""
    request = json.loads(sys.stdin.readline())
    pipe = os.fdopen(os.dup(1), "wb", buffering=_PIPE_BUFFER_BYTES)
    os.dup2(2, 1)  # output of libraries must not mix with the frames
    try:
        _decode(request, _FrameWriter(pipe))
    except BrokenPipeError:
        os._exit(1)  # the parent has exited


if __name__ == "__main__":
    main()
