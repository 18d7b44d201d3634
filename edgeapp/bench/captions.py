"""Measures live captions of a recording in real time: lag of words, and time per update."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import numpy as np

from edgeapp.bench.word_lag import Recording, align, plain_words, word_errors
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource
from edgeapp.live.speech_channel import SpeechChannel
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    PartialText,
    Transcriber,
)
from pipelines.asr import LiveEvent, Samples, SpeechEnded, SpeechStarted, UpdateDecoded
from pipelines.engine import Engine, Request, Result

__all__ = ["CaptionFigures", "Lag", "TimingEngine", "caption"]

_REPEATS = 3  # of every update, with and without its draft
_WARM_UP_S = 12.0  # seconds of the recording; covers every length of the encoder's window


@dataclass(frozen=True)
class Lag:
    """Seconds from the end of a word to its caption, over all correctly recognized words.

    Attributes:
        median: The median.
        late: The 90th percentile.
    """

    median: float
    late: float


@dataclass(frozen=True)
class CaptionFigures:
    """The figures of one policy.

    Attributes:
        policy: "agreement" or "attention".
        words: Number of reference words.
        recognized: Number of these that were recognized correctly; lags are measured on them.
        wrong: Word errors, insertions included.
        display: Lag until a word is first shown in its place.
        committed: Lag until a word is final.
        updates: Updates per second of speech.
        real_time_factor: Seconds of work per second of audio.
        accepted: Share of the draft tokens that were accepted.
        update_ms: Median time of an update.
        drafted_ms: Mean decoding time of an update with its draft.
        plain_ms: Mean decoding time of an update without a draft.
        same: Share of updates with the same tokens with and without the draft.
    """

    policy: str
    words: int
    recognized: int
    wrong: int
    display: Lag
    committed: Lag
    updates: float
    real_time_factor: float
    accepted: float
    update_ms: float
    drafted_ms: float
    plain_ms: float
    same: float


class TimingEngine(Engine):
    """An engine that times every generation with and without its draft.

    It measures between `compare` and `stop`.

    Attributes:
        drafted: Seconds of each generation with its draft.
        plain: Seconds of each generation without its draft.
        same: Number of generations with the same tokens both ways.
    """

    drafted: list[float]
    plain: list[float]
    same: int

    _comparing = False

    def compare(self) -> None:
        """Start measuring; earlier measurements are dropped."""
        self._comparing, self.drafted, self.plain, self.same = True, [], [], 0

    def stop(self) -> None:
        """Stop measuring."""
        self._comparing = False

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """As Engine.generate; calls in which no request has a draft are not measured."""
        if not self._comparing or not any(request.draft for request in requests):
            return super().generate(requests)
        without = [replace(request, draft=()) for request in requests]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(_REPEATS):
            results = self._timed(requests, times[0])
            others = self._timed(without, times[1])
        # The minimum of the repeats: the others were delayed by other programs.
        self.drafted.append(min(times[0]))
        self.plain.append(min(times[1]))
        self.same += [r.tokens for r in results] == [r.tokens for r in others]
        return results

    def _timed(self, requests: Sequence[Request], times: list[float]) -> list[Result]:
        began = time.perf_counter()
        results = super().generate(requests)
        times.append(time.perf_counter() - began)
        return results


@dataclass(frozen=True)
class _Block:
    """A block of audio as the session received it.

    Attributes:
        samples: Its length in samples.
        seconds: Time that feeding it took.
        decoded: Whether an update was decoded.
    """

    samples: int
    seconds: float
    decoded: bool


class _TimedTranscriber(LiveTranscriber):
    """Stores the length and the time of each block."""

    def __init__(self, transcriber: Transcriber, options: LiveOptions) -> None:
        super().__init__(transcriber, options)
        self.blocks: list[_Block] = []

    def feed(self, samples: Samples) -> list[LiveEvent]:
        began = time.perf_counter()
        events = super().feed(samples)
        decoded = any(isinstance(event, UpdateDecoded) for event in events)
        self.blocks.append(_Block(len(samples), time.perf_counter() - began, decoded))
        return events


@dataclass
class _CaptionLog:
    """The captions as they were shown over time.

    Attributes:
        shown: (seconds since the start, all words, number of committed words) of each change.
        drafted: Draft tokens.
        accepted: Accepted draft tokens.
        updates: Number of updates.
        spoken_s: Seconds of speech.
    """

    shown: list[tuple[float, list[str], int]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    updates: int = 0
    spoken_s: float = 0.0
    _text: str = ""
    _speech_start: float = 0.0

    def add(self, event: object, now: float) -> None:
        """Record an event at `now` seconds since the start."""
        if isinstance(event, CommittedText):
            self._text += event.text
        if isinstance(event, CommittedText | PartialText):
            tail = event.text if isinstance(event, PartialText) else ""
            words = plain_words(self._text + tail)
            self.shown.append((now, words, len(plain_words(self._text))))
        elif isinstance(event, UpdateDecoded):
            self.drafted += event.drafted
            self.accepted += event.accepted
            self.updates += 1
        elif isinstance(event, SpeechStarted):
            self._speech_start = event.time
        elif isinstance(event, SpeechEnded):
            self.spoken_s += event.time - self._speech_start

    @property
    def words(self) -> list[str]:
        """The committed words."""
        return plain_words(self._text)

    def first_shown(self, index: int, *, committed: bool) -> float:
        """Seconds since the start at which a word of the final text was first at its index.

        Args:
            index: Index in `words`.
            committed: Count it only once it is committed.
        """
        word = self.words[index]
        for now, words, final in self.shown:
            if index < final or (not committed and index < len(words) and words[index] == word):
                return now
        raise AssertionError("every word of the final text was committed")


def caption(
    engine: TimingEngine,
    transcriber: Transcriber,
    recording: Recording,
    options: LiveOptions,
    report: Callable[[str], None],
) -> CaptionFigures:
    """Feed a recording to a live session in real time, and measure.

    Takes a little longer than the recording: afterwards the same blocks are fed again without
    waiting, to decode each update with and without its draft.

    Args:
        engine: The engine of the transcriber.
        transcriber: The model to measure.
        recording: The recording and its reference.
        options: Options of the live session, with the policy.
        report: Receives progress messages.
    """
    _warm_up(transcriber, recording, options)
    report(f"{options.policy}: playing {recording.name}, {recording.seconds:.0f} s")
    live = _TimedTranscriber(transcriber, options)
    log = _CaptionLog()
    began = time.monotonic()
    for event in LiveSession(SpeechChannel(live), show_decoding=True).run(
        FileSource(recording.samples)
    ):
        log.add(event, time.monotonic() - began)
    report(f"{options.policy}: the same updates with and without their drafts")
    engine.compare()
    _replay(LiveTranscriber(transcriber, options), recording, live.blocks)
    engine.stop()
    return _figures(recording, options, live.blocks, log, engine)


def _warm_up(transcriber: Transcriber, recording: Recording, options: LiveOptions) -> None:
    live = LiveTranscriber(transcriber, options)
    for block in np.array_split(recording.samples[: int(_WARM_UP_S * SAMPLE_RATE)], 50):
        live.feed(block)
    live.finish()


def _replay(live: LiveTranscriber, recording: Recording, blocks: Sequence[_Block]) -> None:
    """Feed the same audio in the same blocks, which gives the same updates."""
    position = 0
    for block in blocks:
        live.feed(recording.samples[position : position + block.samples])
        position += block.samples
    live.finish()


def _figures(
    recording: Recording,
    options: LiveOptions,
    blocks: Sequence[_Block],
    log: _CaptionLog,
    engine: TimingEngine,
) -> CaptionFigures:
    reference = [word.text for word in recording.words]
    hypothesis = log.words
    correct = [
        (recording.words[i].end, j)
        for i, j in align(reference, hypothesis)
        if i is not None and j is not None and reference[i] == hypothesis[j]
    ]
    return CaptionFigures(
        policy=options.policy,
        words=len(reference),
        recognized=len(correct),
        wrong=word_errors(reference, hypothesis),
        display=_lag([log.first_shown(j, committed=False) - end for end, j in correct]),
        committed=_lag([log.first_shown(j, committed=True) - end for end, j in correct]),
        updates=log.updates / log.spoken_s,
        real_time_factor=sum(block.seconds for block in blocks) / recording.seconds,
        accepted=log.accepted / max(1, log.drafted),
        update_ms=1000 * median(block.seconds for block in blocks if block.decoded),
        drafted_ms=1000 * fmean(engine.drafted),
        plain_ms=1000 * fmean(engine.plain),
        same=engine.same / len(engine.drafted),
    )


def _lag(seconds: Sequence[float]) -> Lag:
    return Lag(float(np.median(seconds)), float(np.percentile(seconds, 90)))
