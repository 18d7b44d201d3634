"""Audio that a browser sends, as the source of a live session."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import soxr

from edgeapp.live.sources import Notice
from pipelines import SAMPLE_RATE, InputError
from pipelines.asr import Samples

__all__ = ["BrowserSource"]

# Audio is queued while models load; beyond this it is dropped, which is reported.
_MAX_QUEUED_S = 60.0
_LOWEST_RATE, _HIGHEST_RATE = 8_000, 192_000  # Hz


class BrowserSource:
    """Resamples a browser's audio, 16-bit little-endian, to float32 at 16 kHz.

    Implements edgeapp.live.sources.LiveSource. `put`, `stop` and `cancel` may be called from any
    thread, `read` from one.

    Args:
        rate: The browser's sample rate, in Hz.
        channels: Their samples are interleaved.

    Attributes:
        rate: The same.

    Raises:
        InputError: The rate is not between 8 and 192 kHz.
    """

    def __init__(self, rate: int, channels: int = 1) -> None:
        if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
            raise InputError(f"audio at {rate} Hz cannot be used; 16000 to 48000 is usual")
        self.rate, self.channels = rate, channels
        self._resampler = soxr.ResampleStream(rate, SAMPLE_RATE, channels, dtype="float32")
        self._queue: deque[bytes] = deque()
        # Samples of all channels, at the browser's rate.
        self._queued = self._received = 0
        self._dropped = 0  # after what is queued
        self._notice: Notice | None = None  # before what is queued
        self._changed = threading.Condition()
        self._stopped = self._flushed = False

    def put(self, data: bytes) -> None:
        """Append a recorded block.

        Raises:
            InputError: The last sample, or that of a channel, is incomplete.
        """
        if len(data) % (2 * self.channels):
            if self.channels > 1:
                raise InputError("16-bit audio of two channels comes in groups of four bytes")
            raise InputError("16-bit audio comes in pairs of bytes")
        with self._changed:
            count = len(data) // 2
            if self._stopped or not count:
                return
            if self._dropped or self._queued + count > _MAX_QUEUED_S * self.samples_per_s:
                self._dropped += count
                return
            self._queue.append(data)
            self._queued += count
            self._received += count
            self._changed.notify()

    def read(self, wait_s: float) -> Samples | Notice | None:
        """All queued audio at 16 kHz, possibly empty: [n], or [n, channels] of several. A Notice
        where some was dropped. None after the end.

        Args:
            wait_s: Seconds to wait for audio if none is queued.
        """
        with self._changed:
            notice, self._notice = self._notice, None
            if notice is not None:
                return notice
            if not self._queue and not self._stopped:
                self._changed.wait(wait_s)
            data = b"".join(self._queue)
            self._queue.clear()
            self._queued = 0
            if self._dropped:
                lost_s = self._dropped / self.samples_per_s
                message = f"this machine is too slow: {lost_s:.1f} s of audio were lost"
                self._dropped, self._notice = 0, Notice(message, lost_s, lost_s)
            last = self._stopped and self._notice is None
        if last and self._flushed:
            return None
        self._flushed = last
        block = np.frombuffer(data, "<i2").astype(np.float32) / 32768.0
        if self.channels > 1:
            block = block.reshape(-1, self.channels)
        resampled: Samples = self._resampler.resample_chunk(block, last=last)
        return resampled

    def stop(self) -> None:
        """Accept no more audio; what is queued can still be read."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def cancel(self) -> None:
        """Stop, and discard what is queued."""
        with self._changed:
            self._queue.clear()
            self._queued = 0
            self._stopped = True
            self._changed.notify()

    @property
    def queue_bytes(self) -> int:
        """Bytes of the longest queue."""
        return int(2 * _MAX_QUEUED_S * self.samples_per_s)

    @property
    def samples_per_s(self) -> int:
        """Samples of all channels in a second, at the browser's rate."""
        return self.rate * self.channels

    @property
    def received(self) -> int:
        """Samples that were accepted, of all channels at the browser's rate: the position of the
        next one."""
        return self._received

    @property
    def taken(self) -> int:
        """Samples that were read, as `received`; the others are in the queue."""
        return self._received - self._queued

    @property
    def waiting_s(self) -> float:
        """Seconds of audio in the queue."""
        return self._queued / self.samples_per_s
