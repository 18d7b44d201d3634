"""A limit for the memory of the whole process: weights, sound and caches."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from edgeapp.process_memory import memory_in_use
from pipelines import EdgeError, OptionError

__all__ = ["MemoryLimit", "MemoryLimitReached", "parse_size"]

_UNITS = {"": 1 << 20, "M": 1 << 20, "MB": 1 << 20, "G": 1 << 30, "GB": 1 << 30}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([A-Z]{0,2})")
_SMALLEST = 256 << 20  # the libraries alone take that much
_CACHE_SHARE = 0.25  # of the limit, for the caches of all models
# What a second of a recording takes while it is recognized: samples, their copy and the features.
_SOUND_BYTES_PER_S = 240_000
_LIVE_WINDOW_S = 30.0  # of audio that a live session recognizes again at each update
_CORRECTION_S = 44.0  # of audio that is kept until it is corrected, or being corrected


class MemoryLimitReached(EdgeError):
    """Work does not fit into the memory limit now; it may later."""


class MemoryLimit:
    """The limit of a server. All methods may be called from any thread.

    Args:
        limit: Bytes of RAM and GPU memory of this process; None: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._reserved = 0  # bytes for sessions, used or not
        self._lock = threading.Lock()

    @property
    def cache_bytes(self) -> int | None:
        """The share of the limit for the caches of all models; None: no limit."""
        return None if self.limit is None else int(_CACHE_SHARE * self.limit)

    @property
    def free_bytes(self) -> float:
        """What is left; infinite without a limit."""
        if self.limit is None:
            return float("inf")
        return max(0, self.limit - memory_in_use() - self._reserved)

    @property
    def longest_sound_s(self) -> float:
        """The longest recording that fits now, in seconds."""
        return self.free_bytes / _SOUND_BYTES_PER_S

    def check(self, need: int, what: str) -> None:
        """Check that something fits.

        Args:
            need: Its bytes.
            what: Its name, for the message.

        Raises:
            MemoryLimitReached: It does not fit now.
        """
        free = self.free_bytes
        if need > free:
            raise MemoryLimitReached(
                f"{what} needs about {need >> 20:,} MB, and the memory limit of this server leaves "
                f"{int(free) >> 20:,} MB now; try again later"
            )

    @contextmanager
    def live_session(
        self, queue_bytes: int, channels: int = 1, *, correct: bool = False
    ) -> Iterator[None]:
        """A context in which the memory of a live session is kept free for it.

        Args:
            queue_bytes: Of the longest audio that may wait for the model.
            channels: Recognized apart.
            correct: Finished speech is decoded once more.

        Raises:
            MemoryLimitReached: It does not fit now.
        """
        need = self._live_bytes(queue_bytes, channels, correct)
        with self._lock:
            self.check_live_session(queue_bytes, channels, correct=correct)
            self._reserved += need
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= need

    def check_live_session(
        self, queue_bytes: int, channels: int = 1, *, correct: bool = False
    ) -> None:
        """Check that a live session fits, without keeping its memory free.

        Args:
            queue_bytes, channels, correct: As in `live_session`.

        Raises:
            MemoryLimitReached: It does not fit now.
        """
        self.check(self._live_bytes(queue_bytes, channels, correct), "a live session")

    def _live_bytes(self, queue_bytes: int, channels: int, correct: bool) -> int:
        seconds = _LIVE_WINDOW_S + _CORRECTION_S * correct
        return queue_bytes + channels * int(seconds * _SOUND_BYTES_PER_S)


def parse_size(text: str | None) -> int | None:
    """Bytes of a size such as "6GB", "800M" or "800", which are MB.

    Raises:
        OptionError: It is no such size, or too small.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise OptionError(f"{text!r} is no size of memory; write 6GB or 800MB")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _SMALLEST:
        raise OptionError(f"a memory limit below {_SMALLEST >> 20} MB is too small, not {text!r}")
    return size
