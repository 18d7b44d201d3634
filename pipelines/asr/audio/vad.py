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
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Clipper, Samples, as_mono, quietest_point
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.asr.options import VadOptions
from pipelines.errors import OptionError

_SEARCH_S = 1.0  # the last part of a too long utterance, in which the cut is searched
_DIP_S = 0.1  # length of the quiet part at a cut: longer than the closure of a "t"
_MIN_LEVEL_DB = -120.0  # level of digital silence


# A long pre-roll, for quiet microphones.
LIVE_VAD = VadOptions(
    min_speech_duration_ms=100, min_silence_duration_ms=600, speech_pad_ms=500, long_pause_ms=1500
)


def check_cuts(options: VadOptions) -> VadOptions:
    """Return the options of an utterance, with the defaults of live recognition.

    Raises:
        OptionError: An utterance that begins would be too long already.
    """
    options = options.over(LIVE_VAD)
    begin = options.samples("speech_pad_ms") + options.samples("min_speech_duration_ms")
    # The audio that may be pending when an utterance begins, and the part held back for a cut.
    pending = max(begin, options.samples("min_silence_duration_ms"))
    shortest, longest = pending + _to_samples(_SEARCH_S), options.max_speech_duration_s
    if longest is not None and longest * SAMPLE_RATE < shortest - 1:
        raise OptionError(
            f"max_speech_duration_s must be {shortest / SAMPLE_RATE:g} or more, not {longest:g}: "
            f"{_SEARCH_S:g} above min_silence_duration_ms, and above speech_pad_ms and "
            "min_speech_duration_ms together"
        )
    return options


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
    """No utterance has followed the last one for `long_pause_ms`.

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
            options: None, or None in a field: the defaults of live recognition.
            detector: frame [512] → probability of speech. One with state serves one stream only.
                None: Silero's, new for each stream.
        """
        self.options = options = check_cuts(options or VadOptions())
        self._custom_detector = detector
        self._pre_roll = options.samples("speech_pad_ms")
        self._min_speech = options.samples("min_speech_duration_ms")
        self._min_silence = options.samples("min_silence_duration_ms")
        long_pause = options.samples("long_pause_ms")
        self._long_pause = long_pause if long_pause > self._min_silence else None
        limit_s = options.max_speech_duration_s
        limited = limit_s is not None and math.isfinite(limit_s)
        self._max_utterance = _to_samples(limit_s or 0) if limited else None
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
        # The last utterance was cut: any speech before a pause continues it.
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

    @property
    def tells_long_pauses(self) -> bool:
        """Whether an utterance goes on after a silence that is not long."""
        return self._long_pause is not None

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
        events += self._end(first + quietest_point(self._pending[: latest - first], dip))
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
        """Outside utterances: keep only the audio that the next pre-roll may need."""
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
