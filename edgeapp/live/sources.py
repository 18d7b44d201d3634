"""Audio sources of a live session: a microphone, or a recording played in real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgeapp.live.microphone import Microphone
from pipelines import SAMPLE_RATE, DeviceLost, OutputError, Samples

__all__ = ["FileSource", "JoinedSource", "LiveSource", "MicrophoneSource", "TeeSource"]

_MAX_SKEW = SAMPLE_RATE  # samples by which a channel may be behind another
_MOST_READ_S = 5.0  # at once from a microphone: text is shown while a backlog is recognized
_BLOCK_S = 0.1  # block length of a recording that is read without pacing


class LiveSource(Protocol):
    """Float32 audio at 16 kHz, as it arrives."""

    def read(self, wait_s: float) -> Samples | None:
        """The audio [n], or [n, channels] of several, that has arrived since the last call; None at
        the end.

        Args:
            wait_s: how long to wait for audio (s). Without any, the result is empty.
        """
        ...

    def stop(self) -> None:
        """End the audio. What has arrived can still be read. Callable from any thread."""
        ...

    @property
    def dropped_s(self) -> float:
        """Seconds of audio dropped because they were not read in time."""
        ...

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that have arrived and were not read yet."""
        ...


class MicrophoneSource:
    """A microphone; each read returns the audio that has arrived, five seconds at most.

    Args:
        microphone: that records.
        channels: of its blocks.
    """

    def __init__(self, microphone: Microphone, channels: int = 1) -> None:
        self._microphone = microphone
        self._nothing: Samples = np.zeros((0, channels) if channels > 1 else 0, np.float32)

    def read(self, wait_s: float) -> Samples | None:
        blocks, samples = list[Samples](), 0
        block = self._microphone.try_read(wait_s)
        while block is not None:
            blocks.append(block)
            samples += len(block)
            more = self.waiting_s and samples < _MOST_READ_S * SAMPLE_RATE
            block = self._microphone.try_read(0) if more else None
        if not blocks and self._microphone.ended:
            return None
        return np.concatenate([self._nothing, *blocks])

    def stop(self) -> None:
        self._microphone.stop()

    @property
    def dropped_s(self) -> float:
        return self._microphone.dropped_s

    @property
    def waiting_s(self) -> float:
        return self._microphone.queued_s


class JoinedSource:
    """Sources of one channel each, as the channels of one.

    Their clocks differ a little. A channel that begins later, falls behind, or ends before the
    others, is filled with silence. If the device of one is lost, what was heard is read first.

    Args:
        sources: of mono audio.
    """

    def __init__(self, *sources: LiveSource) -> None:
        self._sources = sources
        self._read: list[Samples] = [np.zeros(0, np.float32) for _ in sources]
        self._begun = [False] * len(sources)
        self._ended = [False] * len(sources)
        self._lost: DeviceLost | None = None

    def read(self, wait_s: float) -> Samples | None:
        if self._lost is not None:
            raise self._lost
        for i, source in enumerate(self._sources):
            block = self._read_one(source, wait_s) if not self._ended[i] else None
            self._ended[i] = block is None
            if block is not None and len(block):
                late = 0 if self._begun[i] else max(map(len, self._read)) - len(block)
                self._begun[i] = True
                self._read[i] = np.concatenate(
                    [self._read[i], np.zeros(max(0, late), np.float32), block]
                )
        lengths = [len(samples) for samples in self._read]
        running = [n for n, ended in zip(lengths, self._ended, strict=True) if not ended]
        if not running and not any(lengths):
            if self._lost is not None:
                raise self._lost
            return None
        count = max(min(running, default=max(lengths)), max(lengths) - _MAX_SKEW)
        if self._lost is not None:  # raised by the next call
            count = max(lengths)
        parts = [np.pad(part[:count], (0, max(0, count - len(part)))) for part in self._read]
        self._read = [part[count:] for part in self._read]
        return np.stack(parts, axis=1)

    def _read_one(self, source: LiveSource, wait_s: float) -> Samples | None:
        try:
            return source.read(wait_s)
        except DeviceLost as error:
            self._lost = error
            return None

    def stop(self) -> None:
        for source in self._sources:
            source.stop()

    @property
    def dropped_s(self) -> float:
        return max(source.dropped_s for source in self._sources)

    @property
    def waiting_s(self) -> float:
        here = max(map(len, self._read)) / SAMPLE_RATE
        return here + max(source.waiting_s for source in self._sources)


class AudioSink(Protocol):
    """Receives the audio that was read, such as a Recorder."""

    def write(self, samples: Samples) -> None: ...


class TeeSource:
    """Wraps a source and writes its audio to a sink as it is read.

    Args:
        source: Is read.
        sink: Is written to, until it fails: the audio goes on.
        on_failure: Called with the error of the sink.
    """

    def __init__(
        self, source: LiveSource, sink: AudioSink, on_failure: Callable[[OutputError], None]
    ) -> None:
        self._source, self._on_failure = source, on_failure
        self._sink: AudioSink | None = sink

    def read(self, wait_s: float) -> Samples | None:
        samples = self._source.read(wait_s)
        if samples is not None and self._sink is not None:
            try:
                self._sink.write(samples)
            except OutputError as error:
                self._sink = None
                self._on_failure(error)
        return samples

    def stop(self) -> None:
        self._source.stop()

    @property
    def dropped_s(self) -> float:
        return self._source.dropped_s

    @property
    def waiting_s(self) -> float:
        return self._source.waiting_s


class FileSource:
    """A recording, played at `speed` times real time. It never drops audio."""

    dropped_s = 0.0

    def __init__(
        self,
        samples: Samples,
        speed: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            samples: float32 [n] at 16 kHz, or [n, channels].
            speed: relative to real time; 0: as fast as it is read.
            clock: seconds; replaceable for tests.
            sleep: replaceable for tests.
        """
        self._samples, self._speed = samples, speed
        self._clock, self._sleep = clock, sleep
        self._start_time: float | None = None  # of the first read
        self._position = 0  # samples read
        self._end = len(samples)

    @property
    def waiting_s(self) -> float:
        return (self._arrived() - self._position) / SAMPLE_RATE if self._speed else 0.0

    def read(self, wait_s: float) -> Samples | None:
        if self._start_time is None:
            self._start_time = self._clock()
        if self._position >= self._end:
            return None
        if not self._speed:
            stop = min(self._position + int(_BLOCK_S * SAMPLE_RATE), self._end)
        else:
            if self._arrived() == self._position:
                self._sleep(min(wait_s, _BLOCK_S / self._speed))
            stop = self._arrived()
        block = self._samples[self._position : stop]
        self._position = stop
        return block

    def stop(self) -> None:
        self._end = min(self._end, max(self._position, self._arrived()))

    def _arrived(self) -> int:
        """Samples played up to now."""
        if self._start_time is None:
            return 0
        played = int((self._clock() - self._start_time) * self._speed * SAMPLE_RATE)
        return min(self._end, max(self._position, played))
