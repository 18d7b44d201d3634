"""Streaming voice activity detection: blocks of audio in, events out; no threads, no clock.

    vad = VoiceActivity()
    for block in microphone:
        for event in vad.feed(block):
            match event: ...
    vad.finish()

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
    "LongPause",
    "SpeechAudio",
    "SpeechEnd",
    "SpeechStart",
    "VoiceActivity",
    "VoiceEvent",
    "VadOptions",
]

_SEARCH_S = 1.0  # the last part of a too long utterance, in which the cut is searched
_DIP_S = 0.1  # length of the quiet part at a cut: longer than the closure of a "t"
_MIN_LEVEL_DB = -120.0  # level of digital silence


@dataclass(frozen=True)
class VadOptions:
    """What counts as speech, and where an utterance begins and ends. Times in seconds.

    Attributes:
        threshold: probability from which a frame is speech. The default is below Silero's 0.5,
            with which a quarter of what is said in an echoing room would be lost.
        neg_threshold: probability below which speech ends; None: threshold less 0.15.
        pre_roll_s: audio before the first frame of speech that belongs to the utterance.
        min_speech_s: shorter speech is ignored; shorter dips do not interrupt the speech that
            starts an utterance.
        min_silence_s: a pause of this length ends an utterance and is its end.
        long_pause_s: a pause of this length, which may be longer than min_silence_s, is followed by
            a LongPause after the utterance's end. None: no pause is.
        max_utterance_s: maximum length of an utterance. A longer one is cut at the quietest point
            of its last second, which is held back for that, and continues as the next one. None:
            unlimited.

    Raises:
        OptionError: a value is out of range.
    """

    threshold: float = 0.35
    neg_threshold: float | None = None
    pre_roll_s: float = 0.3
    min_speech_s: float = 0.1
    min_silence_s: float = 0.6
    max_utterance_s: float | None = None
    long_pause_s: float | None = None

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
        # The audio that may be pending when an utterance begins, and the part held back for a cut.
        shortest = max(self.pre_roll_s + self.min_speech_s, self.min_silence_s) + _SEARCH_S
        if self.max_utterance_s is not None and self.max_utterance_s < shortest:
            raise OptionError(
                f"max_utterance_s must be {shortest:g} or more, not {self.max_utterance_s:g}: "
                f"{_SEARCH_S:g} above min_silence_s, and above pre_roll_s and min_speech_s together"
            )

    @property
    def release(self) -> float:
        """neg_threshold, or its default, as in Silero's get_speech_timestamps."""
        if self.neg_threshold is not None:
            return self.neg_threshold
        return max(self.threshold - 0.15, min(self.threshold, 0.01))


@dataclass(frozen=True)
class SpeechStart:
    """An utterance began.

    Attributes:
        sample: where its audio begins, pre-roll included.
    """

    sample: int


@dataclass(frozen=True, eq=False)
class SpeechAudio:
    """Audio of the utterance, contiguous with the previous SpeechAudio.

    Attributes:
        start: position of its first sample.
        samples: mono float32 [n].
    """

    start: int
    samples: Samples


@dataclass(frozen=True)
class SpeechEnd:
    """The utterance ended.

    Attributes:
        sample: where its audio ends.
        speech_end: where the speech in it ends, before the pause.
    """

    sample: int
    speech_end: int


@dataclass(frozen=True)
class LongPause:
    """No utterance has followed the last one for `long_pause_s`.

    Attributes:
        sample: how far the stream was followed.
    """

    sample: int


VoiceEvent: TypeAlias = SpeechStart | SpeechAudio | SpeechEnd | LongPause


class VoiceActivity:
    """Finds the utterances in a stream of audio blocks, independent of the blocks' sizes.

    Between utterances only the audio of the pre-roll is kept.

    Attributes:
        options: what counts as speech.
        probability: of speech in the latest frame.
        level: RMS of the latest block in dB relative to an amplitude of 1, for a level meter.
    """

    def __init__(
        self,
        options: VadOptions | None = None,
        detector: Callable[[Samples], float] | None = None,
    ) -> None:
        """
        Args:
            options: None: the defaults.
            detector: frame [512] → probability of speech. One with state serves one stream only.
                None: Silero's, new for each stream.
        """
        self.options = options = options or VadOptions()
        self._custom_detector = detector
        self._pre_roll = _to_samples(options.pre_roll_s)
        self._min_speech = _to_samples(options.min_speech_s)
        self._min_silence = _to_samples(options.min_silence_s)
        pause_s = options.long_pause_s
        self._long_pause = None if pause_s is None else _to_samples(pause_s)
        limit_s = options.max_utterance_s
        self._max_utterance = None if limit_s is None else _to_samples(limit_s)
        self._reset()

    def _reset(self) -> None:
        self.probability = 0.0
        self.level = _MIN_LEVEL_DB
        self._detector = self._custom_detector or SileroDetector()
        self._frame = np.zeros(FRAME, np.float32)  # being filled
        self._filled = 0  # samples in it
        self._pending = np.zeros(0, np.float32)  # classified, not emitted
        self._position = 0  # end of _pending in the stream
        self._is_voiced = False  # state of the latest frame
        self._state_start = 0  # position of the latest change of _is_voiced
        # Before an utterance: where its speech may have begun, and the speech samples since then.
        self._onset = 0
        self._speech_samples = 0
        self._in_utterance = False
        self._pause_start: int | None = None  # after an utterance, before its LongPause
        self._utterance_start = 0
        self._clipper = Clipper("the audio stream")
        # The last utterance was cut: any speech before a pause of min_silence_s continues it.
        self._resuming = False

    def feed(self, samples: Samples) -> list[VoiceEvent]:
        """Add the next block and return its events.

        NaN and infinite samples are replaced by 0. Samples beyond ±16 are clipped, with a LoudAudio
        warning.

        Args:
            samples: mono [n] at 16 kHz, n ≥ 0.

        Raises:
            AudioError: `samples` is not an array of samples.
        """
        _, block = as_mono(samples, "the audio stream")
        if not len(block):
            return []
        if not np.isfinite(block).all():
            block = np.where(np.isfinite(block), block, np.float32(0))
        block = self._clipper.clip(block)
        self.level = _level(block)
        events: list[VoiceEvent] = []
        consumed = 0
        while consumed < len(block):
            part = block[consumed : consumed + FRAME - self._filled]
            self._frame[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            consumed += len(part)
            if self._filled == FRAME:
                events += self._process_frame()
        return events

    @property
    def speech_end(self) -> int:
        """Where the latest speech ends so far, as a position in the stream."""
        return self._position if self._is_voiced else self._state_start

    def finish(self) -> list[VoiceEvent]:
        """End the stream and return its last events. The next block starts a stream at 0."""
        events = self._process_frame() if self._filled else []
        if self._in_utterance:
            events += self._end(self._position)
        self._reset()
        return events

    def _process_frame(self) -> list[VoiceEvent]:
        """Classify the frame and update the state of the stream."""
        frame, self._frame = self._frame, np.zeros(FRAME, np.float32)
        self.probability = self._detector(frame)
        release, threshold = self.options.release, self.options.threshold
        is_voiced = self.probability >= (release if self._is_voiced else threshold)
        if is_voiced != self._is_voiced:
            self._is_voiced, self._state_start = is_voiced, self._position
        samples, self._filled = frame[: self._filled], 0
        self._pending = np.concatenate([self._pending, samples])
        self._position += len(samples)
        state_length = self._position - self._state_start
        if self._in_utterance:
            return self._continue(paused=not is_voiced and state_length >= self._min_silence)
        if is_voiced and self._count_speech(len(samples)):
            return self._begin(paused=False)
        self._trim_history(pause=0 if is_voiced else state_length)
        return self._long_pause_event()

    def _long_pause_event(self) -> list[VoiceEvent]:
        """A LongPause, if the pause has become long.

        Speech that is too short for an utterance so far may still begin one.
        """
        if self._pause_start is None or self._long_pause is None or self._speech_samples:
            return []
        if self._position - self._pause_start < self._long_pause:
            return []
        self._pause_start = None
        return [LongPause(self._position)]

    def _count_speech(self, samples: int) -> bool:
        """Count `samples` more of speech; whether they suffice to begin an utterance."""
        if not self._speech_samples:
            self._onset = self._position - samples
        self._speech_samples += samples
        return self._resuming or self._speech_samples >= self._min_speech

    def _begin(self, paused: bool) -> list[VoiceEvent]:
        if not self._resuming:
            self._drop(self._onset - self._pre_roll)
        self._in_utterance, self._resuming, self._speech_samples = True, False, 0
        self._utterance_start, self._pause_start = self._pending_start, None
        return [SpeechStart(self._utterance_start), *self._continue(paused)]

    def _continue(self, paused: bool) -> list[VoiceEvent]:
        """Emit pending audio up to the part in which a cut may fall; end after a pause."""
        safe = self._position
        if self._max_utterance is not None:
            latest = self._utterance_start + self._max_utterance
            if self._position >= latest:
                return self._cut(latest, paused)
            safe = latest - _to_samples(_SEARCH_S)
        return self._end(self._position) if paused else self._emit(safe)

    def _cut(self, latest: int, paused: bool) -> list[VoiceEvent]:
        """End the utterance at the quietest point of its last second and begin the next one."""
        events = self._emit(latest - _to_samples(_SEARCH_S))
        dip, first = _to_samples(_DIP_S), self._pending_start
        energy = np.cumsum(np.square(self._pending[: latest - first], dtype=np.float64))
        quietest = int(np.argmin(energy[dip:] - energy[:-dip]))
        events += self._end(first + quietest + dip // 2)
        # If only the rest of a pause follows the cut, there is no next utterance.
        has_speech = self._is_voiced or self._state_start > self._pending_start
        self._resuming = has_speech or not paused
        return events + self._begin(paused) if has_speech else events

    def _end(self, sample: int) -> list[VoiceEvent]:
        events = self._emit(sample)
        self._in_utterance, self._pause_start = False, min(sample, self.speech_end)
        return [*events, SpeechEnd(sample, self._pause_start)]

    def _emit(self, end: int) -> list[VoiceEvent]:
        """All pending audio before `end`."""
        start = self._pending_start
        if end <= start:
            return []
        samples = self._pending[: end - start].copy()  # a view would keep all of _pending alive
        self._drop(end)
        return [SpeechAudio(start, samples)]

    def _trim_history(self, pause: int) -> None:
        """Outside utterances: keep only the audio that the next pre-roll may need.

        Args:
            pause: samples of silence up to now.
        """
        if self._resuming and pause < self._min_silence:
            return
        self._resuming = False
        if pause >= self._min_speech:
            self._speech_samples = 0
        self._drop((self._onset if self._speech_samples else self._position) - self._pre_roll)

    @property
    def _pending_start(self) -> int:
        return self._position - len(self._pending)

    def _drop(self, before: int) -> None:
        """Drop pending audio before a position."""
        self._pending = self._pending[max(before - self._pending_start, 0) :]


def _to_samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def _level(block: Samples) -> float:
    """RMS in dB relative to an amplitude of 1."""
    power = float(np.mean(np.square(block, dtype=np.float64)))
    return max(10 * math.log10(power), _MIN_LEVEL_DB) if power > 0 else _MIN_LEVEL_DB
