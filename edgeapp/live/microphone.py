"""The microphone: what it hears, as blocks that the recogniser takes, with nothing lost at Stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from edgeapp.live.devices import (
    InputDevice,
    close_stream,
    find_device,
    list_devices,
    open_stream,
    start_stream,
)
from pipelines import DeviceLost

if TYPE_CHECKING:
    from pipelines import Samples

__all__ = ["InputDevice", "Microphone", "find_device", "list_devices"]

_LOOK_S = 0.05  # how often to look up while nothing arrives
_STARTING_S = 5.0  # a headset may take seconds to switch over before its first sound
_LATE_S = 0.5  # after Stop, how long to wait for what was said before it


class Microphone:
    """Records from entering to leaving the `with` block; one reader, once.

    device: None is the system's default when recording starts. queue_s: what may wait to be read
    before new audio is dropped. stall_s: without any sound, not even silence, for so long, the
    device counts as lost.
    dropped_s: audio dropped because the reader was too slow (s). overruns: how often the sound
    system said that it had dropped some itself. ended: all has been handed out.
    """

    def __init__(
        self,
        device: InputDevice | None = None,
        *,
        block_s: float = 0.05,
        queue_s: float = 10.0,
        stall_s: float = 2.0,
    ) -> None:
        self.device = device
        self.dropped_s = 0.0
        self.overruns = 0
        self.ended = False
        self._block_s = block_s
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._most_queued = max(1, round(queue_s / block_s))
        self._patience_s = max(_STARTING_S, stall_s)
        self._stall_s = stall_s
        self._waited_s = 0.0
        self._delay_s = 0.0
        self._stop_at = float("inf")
        self._recording = True
        self._resampler: _Resampler | None = None

    def __enter__(self) -> Microphone:
        """Raises DeviceError when there is no microphone or it cannot be opened."""
        self.device = self.device or find_device()
        self._stream = open_stream(self.device, self._block_s, self._record, self._finished)
        self._rate = self._stream.samplerate
        self._delay_s = self._stream.latency
        self._resampler = _Resampler(self._rate, self._stream.channels)
        start_stream(self.device, self._stream)
        return self

    def __exit__(self, *exc: object) -> None:
        self._recording = False
        self.ended = True
        close_stream(self._stream)

    @property
    def queued_s(self) -> float:
        """Audio that waits to be read (s)."""
        return self._queue.qsize() * self._block_s

    def blocks(self) -> Iterator[Samples]:
        """Float32 mono blocks at 16 kHz as they arrive, of any length, until `stop` or leaving.

        Raises DeviceLost when the device is gone, after handing out what it had recorded.
        """
        while not self.ended:
            block = self.try_read(1.0)
            if block is not None:
                yield block

    def try_read(self, timeout_s: float) -> Samples | None:
        """The next block; None when none came in that time, and ever after the end (`ended`).

        timeout_s: above 0, for only time spent waiting here tells that a device has fallen silent.
        Raises DeviceLost as `blocks` does.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ended:
            # Asked before the queue: what was recorded up to the end is then in it.
            over = self._is_over()
            wait_s = 0.0 if over else min(_LOOK_S, max(0.0, deadline - time.monotonic()))
            try:
                raw = self._queue.get(timeout=wait_s)
            except Empty:
                if over:
                    return self._tail()
                self._waited_s += wait_s
                if time.monotonic() >= deadline:
                    return None
                continue
            self._waited_s, self._patience_s = 0.0, self._stall_s
            if self._resampler is not None and len(block := self._resampler.take(raw)):
                return block
        return None

    def stop(self) -> None:
        """Record no more than what has been said by now; `blocks` hands that out and ends.

        From any thread, or from a signal's handler.
        """
        # What was just said is still on its way through the sound system.
        self._stop_at = min(self._stop_at, time.monotonic() + self._delay_s)

    def _record(self, data: Any, frames: int, _when: Any, flags: Any) -> None:
        """PortAudio's callback, on its own thread: it copies and counts, and never waits."""
        if not self._recording:
            return
        if flags.input_overflow:
            self.overruns += 1
        if self._queue.qsize() < self._most_queued:
            self._queue.put(bytes(data))
        else:
            self.dropped_s += frames / self._rate
        if time.monotonic() >= self._stop_at:
            self._recording = False

    def _finished(self) -> None:
        """PortAudio's word that the stream has ended, for whatever reason."""
        self._recording = False

    def _is_over(self) -> bool:
        if self._waited_s >= self._patience_s or time.monotonic() >= self._stop_at + _LATE_S:
            self._recording = False
        return not self._recording

    def _tail(self) -> Samples | None:
        """What the resampler still holds, then the end. Raises DeviceLost where nobody asked."""
        if self._resampler is not None:
            tail, self._resampler = self._resampler.end(), None
            if len(tail):
                return tail
        self.ended = True
        if self._stop_at < float("inf"):
            return None
        name = self.device.name if self.device else ""
        stalled = self._waited_s >= self._patience_s
        reason = f"has sent nothing for {self._patience_s:g} s" if stalled else "was disconnected"
        raise DeviceLost(
            f"the microphone {name!r} {reason}; what it had recorded is kept. "
            "Plug it in again, or choose another: `edgeapp live --list-devices` shows them"
        )


class _Resampler:
    """Interleaved float32 bytes of one rate and channel count to mono at 16 kHz, seamlessly."""

    def __init__(self, rate: float, channels: int) -> None:
        import soxr

        from pipelines import SAMPLE_RATE

        self._channels = channels
        self._stream: Any = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
        )

    def take(self, raw: bytes) -> Samples:
        """Empty while the filter needs more to go on."""
        import numpy as np

        block: Samples = np.frombuffer(raw, np.float32).reshape(-1, self._channels).mean(axis=1)
        if self._stream is not None:
            block = self._stream.resample_chunk(block)
        return block

    def end(self) -> Samples:
        """What is left when no more will come."""
        import numpy as np

        block: Samples = np.zeros(0, np.float32)
        if self._stream is not None:
            block = self._stream.resample_chunk(block, last=True)
        return block
