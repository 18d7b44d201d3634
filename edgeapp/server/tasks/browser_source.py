"""Audio that a browser sends, as a live session's feed."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import soxr

from pipelines import SAMPLE_RATE, InputError, Samples

__all__ = ["BrowserSource"]

# While models load, audio waits; beyond this it is dropped, and the loss is told.
_MOST_WAITING_S = 60.0
_LOWEST_RATE, _HIGHEST_RATE = 8_000, 192_000  # Hz


class BrowserSource:
    """Takes little-endian 16-bit mono at the browser's rate; hands out float32 at 16 kHz.

    `put`, `stop` and `abandon` may be called from any thread, `read` from one.
    Raises InputError for a rate (Hz) that no browser records at.
    """

    def __init__(self, rate: int) -> None:
        if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
            raise InputError(f"audio at {rate} Hz cannot be used; 16000 to 48000 is usual")
        self._rate = rate
        self._resampler = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
        self._waiting: deque[bytes] = deque()
        self._samples = 0  # waiting, at the browser's rate
        self._dropped = 0
        self._changed = threading.Condition()
        self._stopped = self._flushed = False

    def put(self, data: bytes) -> None:
        """Add what was just recorded. Raises InputError for half a sample."""
        if len(data) % 2:
            raise InputError("16-bit audio comes in pairs of bytes")
        with self._changed:
            count = len(data) // 2
            if self._stopped or not count:
                return
            if self._samples + count > _MOST_WAITING_S * self._rate:
                self._dropped += count
                return
            self._waiting.append(data)
            self._samples += count
            self._changed.notify()

    def read(self, wait_s: float) -> Samples | None:
        with self._changed:
            if not self._waiting and not self._stopped:
                self._changed.wait(wait_s)
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._samples = 0
            ending = self._stopped
        if ending and self._flushed:
            return None
        self._flushed = ending
        block = np.frombuffer(data, "<i2").astype(np.float32) / 32768.0
        return self._resampler.resample_chunk(block, last=ending)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def abandon(self) -> None:
        """Nobody listens any more: what is waiting is thrown away."""
        with self._changed:
            self._waiting.clear()
            self._samples = 0
            self._stopped = True
            self._changed.notify()

    @property
    def dropped_s(self) -> float:
        return self._dropped / self._rate

    @property
    def waiting_s(self) -> float:
        return self._samples / self._rate
