"""Decodes the sound of recordings in a thread, while others or their beginning are recognized.

Chunks of a recording need its sound only up to their end: it is decoded some minutes ahead of the
recognition, so that the first text of a long recording comes at once and its samples need not all
be in memory. Window after window needs the loudness of the whole recording first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from pipelines import EdgeError

if TYPE_CHECKING:
    from pipelines.asr import AudioFile, Samples

__all__ = ["DecodedSound", "SoundPrefetch", "SoundStream"]

_MAX_S = 3600.0  # 230 MB of samples; a longer recording is decoded when it is its turn
_AHEAD_S = 600.0  # 38 MB
_FIRST_AHEAD_S = 60.0  # at first: decoding further would slow down the first text
_BLOCK_S = 1.0
_RATE = 16_000  # Hz


@dataclass(frozen=True)
class DecodedSound:
    """The sound of a whole recording.

    Attributes:
        samples: Float32 at 16 kHz: mono [n], or two channels [n, 2] if they are unlike somewhere.
        warnings: About the recording.
    """

    samples: Samples
    warnings: tuple[str, ...]


class SoundStream:
    """The sound of a recording, decoded in a thread a bounded time ahead of who iterates it.

    Args:
        audio: The recording.
        ahead_s: Seconds of sound that are held at most.

    Attributes:
        duration_s: As the header announces it, or None; exact once all is decoded.
        warnings: About the recording; complete once all is decoded.
    """

    def __init__(self, audio: AudioFile, ahead_s: float = _AHEAD_S) -> None:
        self.duration_s = audio.duration_s
        self.warnings: tuple[str, ...] = ()
        self._audio, self._most = audio, round(ahead_s * _RATE)
        self._room = min(self._most, round(_FIRST_AHEAD_S * _RATE))  # samples to hold by now
        self._changed = threading.Condition()
        self._blocks: deque[Samples] = deque()
        self._held = 0  # samples in _blocks
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[Samples]:
        """Blocks of samples [n], or of two unlike channels [n, 2].

        Raises:
            AudioError: The recording cannot be decoded on.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._blocks or self._ended or self._stopped)
                if self._stopped:
                    return
                if not self._blocks:
                    if self._error is not None:
                        raise self._error
                    return
                block = self._blocks.popleft()
                self._held -= len(block)
                self._room = min(self._most, self._room + 2 * len(block))
                self._changed.notify_all()
            yield block

    def begins(self) -> bool:
        """Whether there is sound: waits for the first block."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._ended or self._stopped)
            return bool(self._blocks) or self._error is None

    def decode(self) -> None:
        """Decode all; called by the thread."""
        from pipelines.notices import collect_notices

        total = 0
        try:
            with collect_notices() as notices:
                for block in _joined(self._audio):
                    total += len(block)
                    if not self._put(block):
                        return
            self.warnings = tuple(each.message for each in notices)
            self.duration_s = total / _RATE
        except BaseException as error:  # of any kind: it is raised where the sound is needed
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def stop(self) -> None:
        """End the decoding, and drop what was decoded."""
        with self._changed:
            self._stopped = True
            self._blocks.clear()
            self._changed.notify_all()

    def _put(self, block: Samples) -> bool:
        """Hold a block, when there is room. Returns whether to go on."""
        with self._changed:
            self._changed.wait_for(lambda: self._held < self._room or self._stopped)
            self._blocks.append(block)
            self._held += len(block)
            self._changed.notify_all()
            return not self._stopped


class SoundPrefetch:
    """Decodes one recording ahead. A context manager, whose end stops the decoding.

    Args:
        in_blocks: Recordings are needed block by block, not as a whole.
    """

    def __init__(self, in_blocks: bool = False) -> None:
        self._in_blocks = in_blocks
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sound")
        self._stopped = threading.Event()
        self._path = ""
        self._sound: Future[DecodedSound | None] | SoundStream | None = None
        self._streams: list[SoundStream] = []

    def __enter__(self) -> SoundPrefetch:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._stop_streams()
        self._executor.shutdown(cancel_futures=True)
        self._sound = None

    def begin(self, path: str) -> None:
        """Decode a recording, in a thread, after the one that was taken last.

        What was decoded before, and not taken, is dropped.
        """
        self._path, self._sound = path, self._opened(path)

    def take(self, path: str) -> DecodedSound | SoundStream | None:
        """The sound of a recording.

        Returns:
            None if it was not decoded ahead and is needed as a whole, is too long for that, or
            cannot be decoded: an error comes up where the path is used instead.
        """
        sound, self._sound = self._sound, None
        if sound is None or path != self._path:
            self._stop_streams()
            sound = self._opened(path) if self._in_blocks else None
        if isinstance(sound, Future):
            return sound.result()
        self._stop_streams(sound)
        return sound if sound is None or sound.begins() else None

    def _opened(self, path: str) -> Future[DecodedSound | None] | SoundStream | None:
        """The sound of a recording, whose decoding has begun; None if it cannot be decoded."""
        from pipelines.asr import open_audio

        if not self._in_blocks:
            return self._executor.submit(self._decode, path)
        try:
            audio = open_audio(path)
        except EdgeError:
            return None
        if audio.unbounded:  # its samples are scaled by the loudest of all
            return self._executor.submit(self._decode, path)
        stream = SoundStream(audio)
        self._streams.append(stream)
        self._executor.submit(stream.decode)
        return stream

    def _stop_streams(self, kept: SoundStream | None = None) -> None:
        """End the decoding of recordings that are not needed any more."""
        for stream in self._streams:
            if stream is not kept:
                stream.stop()
        self._streams = [] if kept is None else [kept]

    def _decode(self, path: str) -> DecodedSound | None:
        from pipelines import load_audio
        from pipelines.notices import collect_notices

        try:
            with Path(path).open("rb") as file, collect_notices() as notices:
                stoppable = cast("IO[bytes]", _StoppableFile(file, self._stopped))
                samples = load_audio(stoppable, _MAX_S, keep_unlike=True)
        except (OSError, EdgeError):
            return None
        return DecodedSound(samples, tuple(each.message for each in notices))


class _StoppableFile:
    """A file that cannot be read any more once an event is set."""

    def __init__(self, file: IO[bytes], stopped: threading.Event) -> None:
        self._file, self._stopped = file, stopped
        self.name, self.seek, self.tell = file.name, file.seek, file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1) -> Any:
        if self._stopped.is_set():
            raise OSError("the run has ended")
        return self._file.read(size)


def _joined(blocks: AudioFile) -> Iterator[Samples]:
    """Blocks joined to some _BLOCK_S: a decoder's own have a few hundredths of a second."""
    import numpy as np

    parts: list[Samples] = []
    length = 0
    for block in blocks:
        if parts and block.ndim != parts[0].ndim:  # from here on two channels, or one
            yield np.concatenate(parts)
            parts, length = [], 0
        parts.append(block)
        length += len(block)
        if length >= _BLOCK_S * _RATE:
            yield np.concatenate(parts)
            parts, length = [], 0
    if parts:
        yield np.concatenate(parts)
