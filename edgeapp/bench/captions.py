"""Live captions on a recording, played in real time: how long words take, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import numpy as np

from edgeapp.bench.word_lag import Recording, align, plain_words, word_errors
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveEvent,
    LiveOptions,
    LiveTranscriber,
    PartialText,
    Samples,
    SpeechEnded,
    SpeechStarted,
    Transcriber,
    UpdateDecoded,
)
from pipelines.engine import Engine, Request, Result

__all__ = ["CaptionFigures", "Lag", "TimingEngine", "caption"]

_TURNS = 3  # of every update, with its draft and without
_WARM_UP_S = 12.0  # of the recording: every length of the encoder's window has then been seen


@dataclass(frozen=True)
class Lag:
    """Seconds from the end of a word, over all words that were recognised."""

    median: float
    late: float  # the 90th percentile


@dataclass(frozen=True)
class CaptionFigures:
    """What came out with one policy.

    words: of the truth; recognised: of these, rightly, on which lags are measured; wrong: errors,
    words too many included. display: lag to the first time that the word is shown in its place,
    committed: until it will not change any more. updates: a second, while somebody speaks.
    real_time_factor: seconds of work on a second of audio. accepted: share of draft tokens.
    update_ms: median of all that an update takes. drafted_ms, plain_ms: mean time that its
    decoding takes with the draft, and without. same: share of updates with the same tokens either
    way.
    """

    policy: str
    words: int
    recognised: int
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
    """Between `compare` and `stop`, does every generation with its draft and without, in turn."""

    drafted: list[float]
    plain: list[float]
    same: int

    _comparing = False

    def compare(self) -> None:
        """Measure from now on; what was measured before is forgotten."""
        self._comparing, self.drafted, self.plain, self.same = True, [], [], 0

    def stop(self) -> None:
        """Measure no more."""
        self._comparing = False

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """As Engine.generate. Requests without any draft tell nothing, and are not measured."""
        if not self._comparing or not any(request.draft for request in requests):
            return super().generate(requests)
        without = [replace(request, draft=()) for request in requests]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(_TURNS):
            results = self._timed(requests, times[0])
            others = self._timed(without, times[1])
        # The best of a few: what got in the way of the others is not the draft's fault.
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
    """Audio as the session was given it, how long it worked on it, and whether on an update."""

    samples: int
    seconds: float
    decoded: bool


class _Measured(LiveTranscriber):
    """Keeps how audio came, and how long it took."""

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
class _Watched:
    """What stood on the screen. shown: (seconds since the start, words, of which committed)."""

    shown: list[tuple[float, list[str], int]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    updates: int = 0
    spoken_s: float = 0.0
    _text: str = ""
    _speech: float = 0.0

    def take(self, event: object, now: float) -> None:
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
            self._speech = event.time
        elif isinstance(event, SpeechEnded):
            self.spoken_s += event.time - self._speech

    @property
    def words(self) -> list[str]:
        """All that was committed."""
        return plain_words(self._text)

    def first(self, index: int, *, committed: bool) -> float:
        """When a word of the final text was first there, in its place."""
        word = self.words[index]
        for now, words, sure in self.shown:
            if index < sure or (not committed and index < len(words) and words[index] == word):
                return now
        raise AssertionError("every word of the final text was committed")


def caption(
    engine: TimingEngine,
    transcriber: Transcriber,
    recording: Recording,
    options: LiveOptions,
    said: Callable[[str], None],
) -> CaptionFigures:
    """Play a recording to a live session as if it were spoken, and measure.

    Takes as long as the recording, and a little more: the same blocks are then gone through once
    more, at once, to do each update with its draft and without.
    transcriber: on that engine. said: hears what is going on.
    """
    _warm_up(transcriber, recording, options)
    said(f"{options.policy}: playing {recording.name}, {recording.seconds:.0f} s")
    live = _Measured(transcriber, options)
    watched = _Watched()
    began = time.monotonic()
    for event in LiveSession(live, show_decoding=True).run(FileSource(recording.samples)):
        watched.take(event, time.monotonic() - began)
    said(f"{options.policy}: the same updates with their drafts and without")
    engine.compare()
    _again(LiveTranscriber(transcriber, options), recording, live.blocks)
    engine.stop()
    return _figures(recording, options, live.blocks, watched, engine)


def _warm_up(transcriber: Transcriber, recording: Recording, options: LiveOptions) -> None:
    live = LiveTranscriber(transcriber, options)
    for block in np.array_split(recording.samples[: int(_WARM_UP_S * SAMPLE_RATE)], 50):
        live.feed(block)
    live.finish()


def _again(live: LiveTranscriber, recording: Recording, blocks: Sequence[_Block]) -> None:
    """The very updates that there were: the same audio in the same blocks."""
    at = 0
    for block in blocks:
        live.feed(recording.samples[at : at + block.samples])
        at += block.samples
    live.finish()


def _figures(
    recording: Recording,
    options: LiveOptions,
    blocks: Sequence[_Block],
    watched: _Watched,
    engine: TimingEngine,
) -> CaptionFigures:
    truth = [word.text for word in recording.words]
    heard = watched.words
    right = [
        (recording.words[i].end, j)
        for i, j in align(truth, heard)
        if i is not None and j is not None and truth[i] == heard[j]
    ]
    return CaptionFigures(
        policy=options.policy,
        words=len(truth),
        recognised=len(right),
        wrong=word_errors(truth, heard),
        display=_lag([watched.first(j, committed=False) - end for end, j in right]),
        committed=_lag([watched.first(j, committed=True) - end for end, j in right]),
        updates=watched.updates / watched.spoken_s,
        real_time_factor=sum(block.seconds for block in blocks) / recording.seconds,
        accepted=watched.accepted / max(1, watched.drafted),
        update_ms=1000 * median(block.seconds for block in blocks if block.decoded),
        drafted_ms=1000 * fmean(engine.drafted),
        plain_ms=1000 * fmean(engine.plain),
        same=engine.same / len(engine.drafted),
    )


def _lag(seconds: Sequence[float]) -> Lag:
    return Lag(float(np.median(seconds)), float(np.percentile(seconds, 90)))
