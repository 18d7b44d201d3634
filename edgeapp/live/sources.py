"""Where a live session's audio comes from: a microphone, or a recording played as if spoken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgeapp.live.microphone import Microphone
from pipelines import SAMPLE_RATE, Samples

__all__ = ["AudioSource", "FileSource", "MicrophoneSource", "RecordedSource"]

_BLOCK_S = 0.1  # what a recording that nobody paces is handed out in


class AudioSource(Protocol):
    """Mono float32 audio at 16 kHz, as it arrives."""

    def read(self, wait_s: float) -> Samples | None:
        """All that has arrived since the last call, waiting up to `wait_s` for it; may be empty.
        None: there will be no more."""
        ...

    def stop(self) -> None:
        """No more audio is wanted; what has arrived is still handed out. From any thread."""
        ...

    @property
    def dropped_s(self) -> float:
        """Seconds lost because they were not fetched in time."""
        ...

    @property
    def waiting_s(self) -> float:
        """Seconds that have arrived and were not fetched yet."""
        ...


class MicrophoneSource:
    """What a microphone hears, all that has arrived at a time."""

    def __init__(self, microphone: Microphone) -> None:
        self._microphone = microphone

    def read(self, wait_s: float) -> Samples | None:
        pieces = []
        piece = self._microphone.try_read(wait_s)
        while piece is not None:
            pieces.append(piece)
            piece = self._microphone.try_read(0) if self.waiting_s else None
        if not pieces and self._microphone.ended:
            return None
        return np.concatenate([np.zeros(0, np.float32), *pieces])

    def stop(self) -> None:
        self._microphone.stop()

    @property
    def dropped_s(self) -> float:
        return self._microphone.dropped_s

    @property
    def waiting_s(self) -> float:
        return self._microphone.queued_s


class AudioSink(Protocol):
    """What keeps the audio that passes."""

    def write(self, samples: Samples) -> None: ...


class RecordedSource:
    """Another feed whose audio is kept as it passes."""

    def __init__(self, feed: AudioSource, sink: AudioSink) -> None:
        self._feed, self._sink = feed, sink

    def read(self, wait_s: float) -> Samples | None:
        samples = self._feed.read(wait_s)
        if samples is not None:
            self._sink.write(samples)
        return samples

    def stop(self) -> None:
        self._feed.stop()

    @property
    def dropped_s(self) -> float:
        return self._feed.dropped_s

    @property
    def waiting_s(self) -> float:
        return self._feed.waiting_s


class FileSource:
    """A recording, played `speed` times as fast as it was spoken; 0: as fast as it is taken.

    Never drops anything. clock, sleep: replaceable, for tests.
    """

    dropped_s = 0.0

    def __init__(
        self,
        samples: Samples,
        speed: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._samples, self._speed = samples, speed
        self._clock, self._sleep = clock, sleep
        self._began: float | None = None
        self._taken = 0
        self._end = len(samples)

    @property
    def waiting_s(self) -> float:
        return (self._arrived() - self._taken) / SAMPLE_RATE if self._speed else 0.0

    def read(self, wait_s: float) -> Samples | None:
        if self._began is None:
            self._began = self._clock()
        if self._taken >= self._end:
            return None
        if not self._speed:
            stop = min(self._taken + int(_BLOCK_S * SAMPLE_RATE), self._end)
        else:
            if self._arrived() == self._taken:
                self._sleep(min(wait_s, _BLOCK_S / self._speed))
            stop = self._arrived()
        block = self._samples[self._taken : stop]
        self._taken = stop
        return block

    def stop(self) -> None:
        self._end = min(self._end, max(self._taken, self._arrived()))

    def _arrived(self) -> int:
        if self._began is None:
            return 0
        played = int((self._clock() - self._began) * self._speed * SAMPLE_RATE)
        return min(self._end, max(self._taken, played))
