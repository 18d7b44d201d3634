"""Records a microphone as float32 blocks at 16 kHz; no audio is lost when it is stopped."""

from __future__ import annotations

import threading
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
from edgeapp.live.timeline import Block, elapsed_s
from pipelines.errors import DeviceError, DeviceLost

if TYPE_CHECKING:
    from pipelines.asr import Samples

__all__ = ["InputDevice", "Microphone", "find_device", "list_devices"]

_POLL_S = 0.05  # between two checks while no audio arrives
_FIRST_BLOCK_TIMEOUT_S = 5.0  # a headset may need seconds to switch profiles before it sends audio
_STOP_TIMEOUT_S = 0.5  # after stop(): how long to wait for audio recorded before it


class Microphone:
    """Records while its `with` block runs; for one reader, once.

    Attributes:
        device: the microphone; known from entering the block on.
        began_s: when recording started, by `elapsed_s`.
        latency_s: by which the sound system delays audio, as it says (s).
        dropped_s: audio dropped because the reader was too slow (s).
        overruns: how often the sound system reported that it had dropped audio itself.
        ended: all audio has been read.
    """

    def __init__(
        self,
        device: InputDevice | None = None,
        *,
        block_s: float = 0.05,
        queue_s: float = 120.0,
        stall_s: float = 2.0,
        channels: int = 1,
    ) -> None:
        """
        Args:
            device: None: the system's default when recording starts.
            block_s: duration of a block (s).
            queue_s: audio that may wait for the reader before new audio is dropped (s); the first
                start compiles kernels for a minute and more on a busy machine.
            stall_s: a device that sends no audio, not even silence, for so long is lost (s).
            channels: 1: all are mixed; more: the first ones, which the device must have.
        """
        self.device = device
        self.began_s = self.latency_s = self.dropped_s = 0.0
        self.overruns = 0
        self.ended = False
        self._block_s, self._channels = block_s, channels
        # Blocks at 16 kHz, of which minutes wait while the models load: a fraction of what devices
        # deliver.
        self._queue: SimpleQueue[Block] = SimpleQueue()
        self._max_queued = max(1, round(queue_s / block_s))  # blocks
        self._timeout_s = max(_FIRST_BLOCK_TIMEOUT_S, stall_s)  # for the next block
        self._stall_s = stall_s
        self._waited_s = 0.0  # for the next block
        self._dropped_before_s = 0.0  # the next block that is queued
        self._stop_at = float("inf")
        self._recording = True
        self._resampler: _Resampler | None = None
        self._resampling = threading.Lock()

    def __enter__(self) -> Microphone:
        """Start recording.

        Raises:
            DeviceError: there is no microphone, it has too few channels, or it cannot be opened.
        """
        self.device = self.device or find_device()
        self._stream = open_stream(self.device, self._block_s, self._on_block, self._on_stream_end)
        if self._stream.channels < self._channels:
            close_stream(self._stream)
            raise DeviceError(
                f"the microphone {self.device.name!r} has one channel: name a device with two, or "
                "two devices"
            )
        self._rate = self._stream.samplerate
        self.latency_s = self._stream.latency
        self._resampler = _Resampler(self._rate, self._stream.channels, self._channels)
        self.began_s = self._arrived_s = elapsed_s()
        start_stream(self.device, self._stream)
        return self

    def __exit__(self, *exc: object) -> None:
        self._recording = False
        self.ended = True
        close_stream(self._stream)

    @property
    def queued_s(self) -> float:
        """Audio waiting to be read (s)."""
        return self._queue.qsize() * self._block_s

    def blocks(self) -> Iterator[Samples]:
        """Blocks as they arrive, until `stop` or the end of the `with` block.

        Yields:
            Float32 samples [n] at 16 kHz, or [n, channels] of several, of any length.

        Raises:
            DeviceLost: the device is gone; all audio that it had recorded was yielded before.
        """
        while not self.ended:
            block = self.try_read(1.0)
            if block is not None and len(block.samples):
                yield block.samples

    def try_read(self, timeout_s: float) -> Block | None:
        """The next block; None after the timeout and after the end (`ended`).

        Args:
            timeout_s: how long to wait (s). Only time spent waiting here counts towards the
                detection of a stalled device, so a reader must not always pass 0.

        Raises:
            DeviceLost: the device is gone; all audio that it had recorded was returned before.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ended:
            # Checked before the queue is read, which then holds all audio up to the end.
            over = self._is_over()
            wait_s = 0.0 if over else min(_POLL_S, max(0.0, deadline - time.monotonic()))
            try:
                block = self._queue.get(timeout=wait_s)
            except Empty:
                if over:
                    return self._last_block()
                self._waited_s += wait_s
                if time.monotonic() >= deadline:
                    return None
                continue
            self._waited_s, self._timeout_s = 0.0, self._stall_s
            return block
        return None

    def stop(self) -> None:
        """End the recording at this moment. The audio up to it can still be read.

        Callable from any thread and from signal handlers.
        """
        # The latest audio is still in the buffers of the sound system.
        self._stop_at = min(self._stop_at, time.monotonic() + self.latency_s)

    def _on_block(self, data: Any, frames: int, _when: Any, flags: Any) -> None:
        """PortAudio's callback for a block, on its own thread; it must not block."""
        if not self._recording:
            return
        self._arrived_s, seconds = elapsed_s(), frames / self._rate
        if flags.input_overflow:
            self.overruns += 1
        if self._queue.qsize() < self._max_queued:
            with self._resampling:
                if self._resampler is None:
                    return
                samples, is_zero = self._resampler.resample(data)
            block = Block(samples, seconds, self._arrived_s, self._dropped_before_s, is_zero)
            self._dropped_before_s = 0.0
            self._queue.put(block)
        else:
            self._dropped_before_s += seconds
            self.dropped_s += seconds
        if time.monotonic() >= self._stop_at:
            self._recording = False

    def _on_stream_end(self) -> None:
        """PortAudio's callback for the end of the stream, for any reason."""
        self._recording = False

    def _is_over(self) -> bool:
        """Whether no more audio will be queued."""
        if self._waited_s >= self._timeout_s or time.monotonic() >= self._stop_at + _STOP_TIMEOUT_S:
            self._recording = False
        return not self._recording

    def _last_block(self) -> Block | None:
        """The resampler's remaining audio, then None.

        Raises:
            DeviceLost: the recording ended without `stop`.
        """
        with self._resampling:
            resampler, self._resampler = self._resampler, None
        if resampler is not None:
            return Block(resampler.flush(), 0.0, self._arrived_s, self._dropped_before_s)
        self.ended = True
        if self._stop_at < float("inf"):
            return None
        name = self.device.name if self.device else ""
        stalled = self._waited_s >= self._timeout_s
        reason = f"has sent nothing for {self._timeout_s:g} s" if stalled else "was disconnected"
        raise DeviceLost(
            f"the microphone {name!r} {reason}; the audio recorded so far is kept. "
            "Plug it in again, or choose another: `edgeapp live --list-devices` lists them"
        )


class _Resampler:
    """Interleaved float32 bytes to float32 at 16 kHz, without seams between blocks.

    Args:
        rate: of the device, in Hz.
        channels: of the device.
        kept: 1: all are mixed; more: the first ones.
    """

    def __init__(self, rate: float, channels: int, kept: int) -> None:
        import soxr

        from pipelines import SAMPLE_RATE

        self._channels, self._kept = channels, kept
        self._stream: Any = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, kept, dtype="float32")
        )

    def resample(self, raw: Any) -> tuple[Samples, bool]:
        """Return the next samples [n] or [n, kept], and whether the device sent only zeros.

        They are empty while the filter needs more input.
        """
        import numpy as np

        block: Samples = np.frombuffer(raw, np.float32).reshape(-1, self._channels)
        is_zero = not block.any()
        # A copy: PortAudio uses the memory again.
        block = block.mean(axis=1) if self._kept == 1 else block[:, : self._kept].copy()
        if self._stream is not None:
            block = self._stream.resample_chunk(block)
        return block, is_zero

    def flush(self) -> Samples:
        """The last samples, after the end of the input."""
        import numpy as np

        block: Samples = np.zeros((0, self._kept) if self._kept > 1 else 0, np.float32)
        if self._stream is not None:
            block = self._stream.resample_chunk(block, last=True)
        return block
