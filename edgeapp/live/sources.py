"""Audio sources of a live session: a microphone, or a recording played in real time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from edgeapp.live.microphone import Microphone
from edgeapp.live.timeline import Gap, Timeline
from pipelines import SAMPLE_RATE, OutputError
from pipelines.asr import Samples
from pipelines.errors import DeviceLost

__all__ = [
    "FileSource",
    "JoinedSource",
    "LiveSource",
    "MicrophoneSource",
    "Notice",
    "TeeSource",
]

_MAX_SKEW = SAMPLE_RATE  # samples by which a channel may be behind another
_MUTED_S = 3.0  # of nothing but zeros: microphones that are on have some noise
# A microphone that is heard after such zeros may have a noise gate, which sends zeros in pauses.
_MUTED_AGAIN_S = 60.0
_MOST_READ_S = 5.0  # at once from a microphone: text is shown while a backlog is recognized
_BLOCK_S = 0.1  # block length of a recording that is read without pacing


@dataclass(frozen=True)
class Notice:
    """What a source reports between two pieces of audio.

    Attributes:
        message: for the user; "": nothing needs to be said.
        gap_s: time that has passed between the two pieces (s), of which there is no audio.
        lost_s: audio of any channel that was lost (s).
    """

    message: str
    gap_s: float = 0.0
    lost_s: float = 0.0


class LiveSource(Protocol):
    """Float32 audio at 16 kHz, as it arrives."""

    def read(self, wait_s: float) -> Samples | Notice | None:
        """The audio [n], or [n, channels] of several, that has arrived since the last call, or a
        Notice at this place of it; None at the end.

        Args:
            wait_s: how long to wait for audio (s). Without any, the result is empty.
        """
        ...

    def stop(self) -> None:
        """End the audio. What has arrived can still be read. Callable from any thread."""
        ...

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that have arrived and were not read yet."""
        ...


class MicrophoneSource:
    """A microphone; each read returns the audio that has arrived, five seconds at most.

    Args:
        microphone: Records.
        channels: Of its blocks.
        since_s: When the audio begins, by `elapsed_s`. Until the microphone starts is a gap.
        goes_on: It replaces a microphone that was lost then.
    """

    def __init__(
        self,
        microphone: Microphone,
        channels: int = 1,
        since_s: float | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        self._microphone, self._goes_on = microphone, goes_on
        since_s = microphone.began_s if since_s is None else since_s
        self._timeline = Timeline(since_s, microphone.latency_s)
        self._nothing: Samples = np.zeros((0, channels) if channels > 1 else 0, np.float32)
        self._notices: deque[Notice] = deque()
        self._lost: DeviceLost | None = None
        self._zero_s = 0.0  # for how long the device has sent nothing but zeros
        self._muted, self._muted_s = False, _MUTED_S

    @property
    def end_s(self) -> float:
        """The time of the end of the audio that was read, by `elapsed_s`."""
        return self._timeline.end_s

    def read(self, wait_s: float) -> Samples | Notice | None:
        if self._notices:
            return self._notices.popleft()
        parts, samples = [self._nothing], 0
        # It waits once, so that the session is not held up while later blocks decide on a gap.
        while samples < _MOST_READ_S * SAMPLE_RATE and not self._notices:
            ended = self._lost is not None or self._microphone.ended
            found = self._timeline.take(ended=ended)
            if isinstance(found, Gap):
                self._notices.append(self._notice_of(found))
            elif found is not None:
                parts.append(found.samples)
                samples += len(found.samples)
                self._watch_for_zeros(found.seconds, is_zero=found.is_zero)
            elif ended or not self._fetch(wait_s):
                break
            else:
                wait_s = 0.0
        if samples or not self._microphone.ended or self._notices:
            return np.concatenate(parts)
        if self._lost is not None:
            raise self._lost
        return None

    def stop(self) -> None:
        self._microphone.stop()

    @property
    def waiting_s(self) -> float:
        return self._microphone.queued_s + self._timeline.waiting_s

    def _fetch(self, wait_s: float) -> bool:
        """Get the next block of the microphone; whether there may be more now."""
        try:
            block = self._microphone.try_read(wait_s)
        except DeviceLost as error:
            self._lost = error
            return True
        if block is not None:
            self._timeline.add(block)
        return block is not None or self._microphone.ended

    def _notice_of(self, gap: Gap) -> Notice:
        lost = f"{_duration(gap.seconds)} of audio"
        if gap.reason == "start":
            message = f"{lost} are missing: no microphone was there" if self._goes_on else ""
            return Notice(message, gap.seconds, gap.seconds if self._goes_on else 0.0)
        if gap.reason == "dropped":
            waiting = f"{self.waiting_s:.1f} s are waiting"
            message = f"this machine is too slow: {lost} were lost, and {waiting}"
        else:
            message = (
                f"{lost} are missing or late: the computer slept, the program was stopped, the "
                "machine was too busy, or the sound system delays audio more than before"
            )
        return Notice(message, gap.seconds, gap.seconds)

    def _watch_for_zeros(self, seconds: float, *, is_zero: bool) -> None:
        """Report a microphone that sends only zeros, which real ones do if they are muted."""
        device = self._microphone.device
        if device is None or device.loopback:
            return
        self._zero_s = self._zero_s + seconds if is_zero else 0.0
        if not self._muted and self._zero_s >= self._muted_s:
            self._muted = True
            self._notices.append(
                Notice(
                    f"the microphone {device.name!r} sends only silence: is it muted? Its own "
                    "switch and the system's sound settings can do that"
                )
            )
        elif self._muted and not is_zero and seconds:
            self._muted, self._muted_s = False, _MUTED_AGAIN_S
            self._notices.append(Notice(f"the microphone {device.name!r} is heard again"))


class JoinedSource:
    """Sources of one channel each, as the channels of one.

    Their clocks differ a little. A channel that falls behind, or ends before the others, is filled
    with silence, and so is a gap as far as the others have audio there. The part of a gap that all
    have is a gap of the session. If the device of one is lost, what was heard is read first.

    Args:
        sources: of mono audio, which begin at the same time.
        since_s: when they begin, by `elapsed_s`.

    Attributes:
        end_s: the time of the end of the audio that was read.
    """

    def __init__(self, *sources: LiveSource, since_s: float = 0.0) -> None:
        self._sources = sources
        self.end_s = since_s
        self._read: list[Samples] = [np.zeros(0, np.float32) for _ in sources]
        self._gaps: list[Notice | None] = [None] * len(sources)  # behind what was read
        self._owed = [0] * len(sources)  # samples in whose place silence was returned
        self._ended = [False] * len(sources)
        self._notices: deque[Notice] = deque()
        self._lost: DeviceLost | None = None

    def read(self, wait_s: float) -> Samples | Notice | None:
        if self._notices:
            return self._notices.popleft()
        if self._lost is not None:
            raise self._lost
        for i, source in enumerate(self._sources):
            if not self._ended[i] and self._gaps[i] is None:
                self._take(i, self._read_one(source, wait_s))
        if (gap := self._shared_gap()) is not None:
            self.end_s += gap.gap_s
            self._notices.append(gap)
            return self._cut(0)  # what was before it has been returned
        lengths = [len(samples) for samples in self._read]
        running = [n for n, ended in zip(lengths, self._ended, strict=True) if not ended]
        if not running and not any(lengths):
            if self._notices:
                return self._notices.popleft()
            if self._lost is not None:
                raise self._lost
            return None
        count = max(min(running, default=max(lengths)), max(lengths) - _MAX_SKEW)
        if self._lost is not None or self._all_have_gaps():
            count = max(lengths)
        return self._cut(count)

    def _read_one(self, source: LiveSource, wait_s: float) -> Samples | Notice | None:
        try:
            return source.read(wait_s)
        except DeviceLost as error:
            self._lost = error
            return None

    def _take(self, i: int, piece: Samples | Notice | None) -> None:
        """Note what was read of a source."""
        if piece is None:
            self._ended[i] = True
        elif not isinstance(piece, Notice):
            self._append(i, piece)
        elif piece.gap_s * SAMPLE_RATE >= _MAX_SKEW:
            self._gaps[i] = piece  # the others may have it too
        else:
            self._fill(i, piece, _MAX_SKEW)

    def _append(self, i: int, samples: Samples) -> None:
        late = min(self._owed[i], len(samples))
        self._owed[i] -= late
        self._read[i] = np.concatenate([self._read[i], samples[late:]])

    def _fill(self, i: int, gap: Notice, most: int) -> None:
        """Put silence in the place of a gap: so many samples at most. The rest of the gap is kept.

        The other channels may have a gap there too, which they report later.
        """
        length = round(gap.gap_s * SAMPLE_RATE)
        count = min(length, most)
        late = min(self._owed[i], count)
        self._owed[i] -= late
        self._append(i, np.zeros(count - late, np.float32))
        if count < length:
            self._gaps[i] = replace(gap, gap_s=(length - count) / SAMPLE_RATE)
            return
        self._gaps[i] = None
        if gap.message:
            self._notices.append(replace(gap, gap_s=0.0))

    def _all_have_gaps(self) -> bool:
        pairs = zip(self._gaps, self._ended, strict=True)
        return not all(self._ended) and all(ended or gap is not None for gap, ended in pairs)

    def _shared_gap(self) -> Notice | None:
        """The gap that all channels have, once the audio before it has been returned."""
        if not self._all_have_gaps():
            longest = max(map(len, self._read))
            for i, gap in enumerate(self._gaps):
                if gap is not None and longest >= _MAX_SKEW:
                    self._fill(i, gap, self._owed[i] + longest - len(self._read[i]))
            return None
        if any(map(len, self._read)):
            return None
        gaps = [(i, gap) for i, gap in enumerate(self._gaps) if gap is not None]
        self._gaps = [None] * len(self._gaps)
        lengths = {i: round(gap.gap_s * SAMPLE_RATE) - self._owed[i] for i, gap in gaps}
        shared = max(0, min(lengths.values()))
        for i, length in lengths.items():
            self._owed[i] = max(0, -length)
            if length > shared:
                self._take(i, Notice("", (length - shared) / SAMPLE_RATE))
        most_lost = max((gap for _, gap in gaps), key=lambda gap: gap.lost_s)
        return replace(most_lost, gap_s=shared / SAMPLE_RATE)

    def _cut(self, count: int) -> Samples:
        """Return the next samples of all channels."""
        lacking = [max(0, count - len(part)) for part in self._read]
        parts = [np.pad(part[:count], (0, n)) for part, n in zip(self._read, lacking, strict=True)]
        self._owed = [owed + n for owed, n in zip(self._owed, lacking, strict=True)]
        self._read = [part[count:] for part in self._read]
        self.end_s += count / SAMPLE_RATE
        return np.stack(parts, axis=1)

    def stop(self) -> None:
        for source in self._sources:
            source.stop()

    @property
    def waiting_s(self) -> float:
        here = max(map(len, self._read)) / SAMPLE_RATE
        return here + max(source.waiting_s for source in self._sources)


class AudioSink(Protocol):
    """Receives the audio that was read, such as a Recorder."""

    def write(self, samples: Samples) -> None: ...
    def skip(self, seconds: float) -> None: ...


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

    def read(self, wait_s: float) -> Samples | Notice | None:
        piece = self._source.read(wait_s)
        if piece is not None and self._sink is not None:
            try:
                if not isinstance(piece, Notice):
                    self._sink.write(piece)
                elif piece.gap_s:
                    self._sink.skip(piece.gap_s)
            except OutputError as error:
                self._sink = None
                self._on_failure(error)
        return piece

    def stop(self) -> None:
        self._source.stop()

    @property
    def waiting_s(self) -> float:
        return self._source.waiting_s


class FileSource:
    """A recording, played at `speed` times real time. It never drops audio."""

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


def _duration(seconds: float) -> str:
    """A duration for a message: "0.4 s", "75 s", "12 min", "3 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
