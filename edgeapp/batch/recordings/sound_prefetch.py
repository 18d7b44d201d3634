"""Decodes the sound of the next recording while the present one is recognized."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from pipelines import EdgeError

if TYPE_CHECKING:
    from pipelines import Samples

__all__ = ["DecodedSound", "SoundPrefetch"]

_MAX_S = 3600.0  # 230 MB of samples; a longer recording is decoded when it is its turn


@dataclass(frozen=True)
class DecodedSound:
    """The sound of a recording.

    Attributes:
        samples: Mono float32 [n] at 16 kHz.
        warnings: About the recording.
    """

    samples: Samples
    warnings: tuple[str, ...]


class SoundPrefetch:
    """Holds one decoded recording at most. A context manager, whose end stops the decoding."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sound")
        self._stopped = threading.Event()
        self._path = ""
        self._sound: Future[DecodedSound | None] | None = None

    def __enter__(self) -> SoundPrefetch:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._executor.shutdown(cancel_futures=True)
        self._sound = None

    def begin(self, path: str) -> None:
        """Decode a recording, in a thread. What was decoded before is dropped."""
        self._path = path
        self._sound = self._executor.submit(self._decode, path)

    def take(self, path: str) -> DecodedSound | None:
        """The sound of a recording.

        Returns:
            None if it was not the one that was begun, is too long, or cannot be decoded: an error
            comes up where the path is used instead.
        """
        sound, self._sound = self._sound, None
        if sound is None or path != self._path:
            return None
        return sound.result()

    def _decode(self, path: str) -> DecodedSound | None:
        from pipelines import collect_notices, load_audio

        try:
            with Path(path).open("rb") as file, collect_notices() as notices:
                stoppable = cast("IO[bytes]", _StoppableFile(file, self._stopped))
                samples = load_audio(stoppable, _MAX_S)
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
