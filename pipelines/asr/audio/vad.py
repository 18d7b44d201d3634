"""When is someone speaking: streaming voice activity. Audio in, events out; no threads, no clock.

    voice = VoiceActivity()
    for block in microphone:
        for event in voice.feed(block):
            match event: ...
    voice.finish()

Positions are samples at 16 kHz from the start of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Clipper, Samples, as_mono
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.errors import OptionError

__all__ = [
    "SpeechAudio",
    "SpeechEnd",
    "SpeechStart",
    "VoiceActivity",
    "VoiceEvent",
    "VoiceOptions",
]

_SEARCH_S = 1.0  # before max_utterance_s: where a place to cut is looked for
_DIP_S = 0.1  # what must be quiet there: longer than the stop in a "t", shorter than a pause
_FLOOR_DB = -120.0  # level of digital silence


@dataclass(frozen=True)
class VoiceOptions:
    """What counts as speech, and where an utterance begins and ends. Times in seconds.

    threshold: probability from which on a frame is speech. neg_threshold: below which it no
        longer is; None: 0.15 less.
    pre_roll_s: audio handed out from before the first frame of speech.
    min_speech_s: what is shorter is no speech; dips shorter than this do not interrupt it.
    min_silence_s: a pause of this length ends an utterance, and is its end.
    max_utterance_s: no utterance is longer: it is cut at the quietest point of its last second,
        which is held back for that, and goes on as the next. None: it may last for ever.

    Raises OptionError for values that make no sense.
    """

    threshold: float = 0.5
    neg_threshold: float | None = None
    pre_roll_s: float = 0.3
    min_speech_s: float = 0.1
    min_silence_s: float = 0.6
    max_utterance_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise OptionError(f"{field.name} must be a number from 0 on, not {value}")
        if not 0 < self.threshold < 1:
            raise OptionError(f"threshold must lie between 0 and 1, not be {self.threshold}")
        if not 0 < self.release <= self.threshold:
            raise OptionError(
                f"neg_threshold must be above 0 and at most threshold ({self.threshold}), "
                f"not {self.neg_threshold}"
            )
        # What may be pending when an utterance begins, and what is held back to cut it.
        shortest = max(self.pre_roll_s + self.min_speech_s, self.min_silence_s) + _SEARCH_S
        if self.max_utterance_s is not None and self.max_utterance_s < shortest:
            raise OptionError(
                f"max_utterance_s must be {shortest:g} or more, not {self.max_utterance_s:g}: "
                f"{_SEARCH_S:g} above min_silence_s, and above pre_roll_s and min_speech_s together"
            )

    @property
    def release(self) -> float:
        """neg_threshold, or what it is by default (as in Silero's get_speech_timestamps)."""
        if self.neg_threshold is not None:
            return self.neg_threshold
        return max(self.threshold - 0.15, min(self.threshold, 0.01))


@dataclass(frozen=True)
class SpeechStart:
    """Someone began to speak. sample: where the audio handed out begins, pre-roll included."""

    sample: int


@dataclass(frozen=True, eq=False)
class SpeechAudio:
    """Audio of the utterance; each piece begins where the one before ended.

    start: position of its first sample. samples: float32 [n].
    """

    start: int
    samples: Samples


@dataclass(frozen=True)
class SpeechEnd:
    """The utterance is over. sample: where its audio ends."""

    sample: int


VoiceEvent: TypeAlias = SpeechStart | SpeechAudio | SpeechEnd


class VoiceActivity:
    """Finds the utterances in a stream of audio blocks; the same whatever the blocks' sizes.

    Between utterances it remembers no more than the pre-roll.
    """

    def __init__(
        self,
        options: VoiceOptions | None = None,
        detector: Callable[[Samples], float] | None = None,
    ) -> None:
        """detector: frame [512] → probability of speech; one that remembers frames must be new
        for each stream. None: Silero's, which is."""
        self._options = options = options or VoiceOptions()
        self._detector_given = detector
        self._pre_roll = _samples(options.pre_roll_s)
        self._min_speech = _samples(options.min_speech_s)
        self._min_silence = _samples(options.min_silence_s)
        limit = options.max_utterance_s
        self._max_utterance = None if limit is None else _samples(limit)
        self._restart()

    def _restart(self) -> None:
        self.probability = 0.0
        """Of speech in the latest frame."""
        self.level = _FLOOR_DB
        """RMS of the latest block in dB relative to an amplitude of 1, for a level meter."""
        self._detector = self._detector_given or SileroDetector()
        self._frame = np.zeros(FRAME, np.float32)
        self._filled = 0  # samples in it so far
        self._pending = np.zeros(0, np.float32)  # judged, and not handed out (yet)
        self._position = 0  # where it ends
        self._voiced = False  # whether the latest frame was speech,
        self._since = 0  # and from where on the stream has been the one or the other
        self._onset = 0  # outside utterances: where what may become one began,
        self._heard = 0  # and how many samples of speech there were since
        self._open = False  # inside an utterance,
        self._start = 0  # which began here
        self._clipper = Clipper("the audio stream")
        self._resuming = False  # cut in a pause: any speech that follows belongs to it

    def feed(self, samples: Samples) -> list[VoiceEvent]:
        """What the next block [n], n ≥ 0, at 16 kHz brings. NaN and infinity are taken as 0,
        and samples beyond ±16 are clipped, with a LoudAudio warning.

        Raises AudioError for what is no array of samples.
        """
        _, block = as_mono(samples, "the audio stream")
        if not len(block):
            return []
        if not np.isfinite(block).all():
            block = np.where(np.isfinite(block), block, np.float32(0))
        block = self._clipper.clip(block)
        self.level = _level(block)
        events: list[VoiceEvent] = []
        done = 0
        while done < len(block):
            piece = block[done : done + FRAME - self._filled]
            self._frame[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            done += len(piece)
            if self._filled == FRAME:
                events += self._hear()
        return events

    def finish(self) -> list[VoiceEvent]:
        """What the end of the stream brings. The next block begins another, at position 0."""
        events = self._hear() if self._filled else []
        if self._open:
            events += self._end(self._position)
        self._restart()
        return events

    def _hear(self) -> list[VoiceEvent]:
        """Judge the frame, and follow what speech and silence come to with it."""
        frame, self._frame = self._frame, np.zeros(FRAME, np.float32)
        self.probability = self._detector(frame)
        release, threshold = self._options.release, self._options.threshold
        voiced = self.probability >= (release if self._voiced else threshold)
        if voiced != self._voiced:
            self._voiced, self._since = voiced, self._position
        heard, self._filled = frame[: self._filled], 0
        self._pending = np.concatenate([self._pending, heard])
        self._position += len(heard)
        lasted = self._position - self._since
        if self._open:
            return self._go_on(paused=not voiced and lasted >= self._min_silence)
        if voiced and self._is_speech(len(heard)):
            return self._begin(paused=False)
        self._forget(pause=0 if voiced else lasted)
        return []

    def _is_speech(self, samples: int) -> bool:
        """Whether with the latest voiced samples enough is heard to begin an utterance."""
        if not self._heard:
            self._onset = self._position - samples
        self._heard += samples
        return self._resuming or self._heard >= self._min_speech

    def _begin(self, paused: bool) -> list[VoiceEvent]:
        if not self._resuming:
            self._drop(self._onset - self._pre_roll)
        self._open, self._resuming, self._heard = True, False, 0
        self._start = self._pending_start
        return [SpeechStart(self._start), *self._go_on(paused)]

    def _go_on(self, paused: bool) -> list[VoiceEvent]:
        """Hand out what is new, as far as no cut can come before it."""
        safe = self._position
        if self._max_utterance is not None:
            latest = self._start + self._max_utterance
            if self._position >= latest:
                return self._cut(latest, paused)
            safe = latest - _samples(_SEARCH_S)
        return self._end(self._position) if paused else self._hand_out(safe)

    def _cut(self, latest: int, paused: bool) -> list[VoiceEvent]:
        """End the utterance where it was quietest in its last second; the rest goes on."""
        events = self._hand_out(latest - _samples(_SEARCH_S))
        dip, first = _samples(_DIP_S), self._pending_start
        energy = np.cumsum(np.square(self._pending[: latest - first], dtype=np.float64))
        quietest = int(np.argmin(energy[dip:] - energy[:-dip]))
        events += self._end(first + quietest + dip // 2)
        # An utterance of nothing but the pause in which it was cut would be one too many.
        spoken = self._voiced or self._since > self._pending_start
        self._resuming = spoken or not paused
        return events + self._begin(paused) if spoken else events

    def _end(self, sample: int) -> list[VoiceEvent]:
        events = self._hand_out(sample)
        self._open = False
        return [*events, SpeechEnd(sample)]

    def _hand_out(self, end: int) -> list[VoiceEvent]:
        """All pending audio before `end`."""
        start = self._pending_start
        if end <= start:
            return []
        samples = self._pending[: end - start].copy()  # lest it keep all the rest alive
        self._drop(end)
        return [SpeechAudio(start, samples)]

    def _forget(self, pause: int) -> None:
        """Outside utterances: of the past, keep what the pre-roll of the next one may need.

        pause: samples of silence up to now.
        """
        if self._resuming and pause < self._min_silence:
            return
        self._resuming = False
        if pause >= self._min_speech:
            self._heard = 0
        self._drop((self._onset if self._heard else self._position) - self._pre_roll)

    @property
    def _pending_start(self) -> int:
        return self._position - len(self._pending)

    def _drop(self, before: int) -> None:
        self._pending = self._pending[max(before - self._pending_start, 0) :]


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def _level(block: Samples) -> float:
    power = float(np.mean(np.square(block, dtype=np.float64)))
    return max(10 * math.log10(power), _FLOOR_DB) if power > 0 else _FLOOR_DB
