"""What a transcription gives: segments, and the events on the way to them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "TranscriptionInfo",
    "Retract",
    "Segment",
    "SegmentDone",
    "TextDelta",
    "TranscriptEvent",
    "Transcription",
    "Word",
]


@dataclass(frozen=True)
class Word:
    """A word with the space before it and the punctuation around it; start, end: seconds.
    probability: the mean over its tokens."""

    word: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True)
class Segment:
    """A piece of speech with its text; fields as in openai-whisper's results.

    id: counts from 0. seek: frame (10 ms) at which its window began. start, end: seconds.
    text: begins with the space that parts it from the text before. Empty, without tokens, where
        openai-whisper clears a segment: it lasts no time or says nothing. Such a segment is kept
        so that ids agree, and is for writers to leave out.
    tokens: ids, timestamps included. temperature, avg_logprob, compression_ratio,
    no_speech_prob: of the whole window. words: where word_timestamps were asked for.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class TranscriptionInfo:
    """The first event. language: code, given or detected. language_probability: of the detected
    one, None when given or the only one. duration: seconds, None for a stream. warnings: about
    the recording, such as that only a part of it could be decoded; each names it."""

    language: str
    language_probability: float | None
    duration: float | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextDelta:
    """Live text, for show: what was just decoded of the present window, whole characters only.

    The next SegmentDone replaces all live text before it; a Retract takes it back.
    """

    text: str


@dataclass(frozen=True)
class Retract:
    """All live text since the last SegmentDone is taken back: the window failed a threshold and
    is decoded again, or holds no speech."""


@dataclass(frozen=True)
class SegmentDone:
    """A segment, final. Those of one window come together, at its end."""

    segment: Segment


TranscriptEvent: TypeAlias = TranscriptionInfo | TextDelta | Retract | SegmentDone


class Transcription(Iterator[Segment]):
    """The segments of one recording, decoded as they are asked for; can be gone through once.

    Closing it, or leaving it as a context manager, cancels what is being decoded.
    """

    def __init__(self, events: Generator[TranscriptEvent, None, None]) -> None:
        self._events = events
        self._info: TranscriptionInfo | None = None

    @property
    def info(self) -> TranscriptionInfo:
        """What is known from the start. Detects the language, if it is to be."""
        if self._info is None:
            first = next(self._events)
            assert isinstance(first, TranscriptionInfo), "Info is the first event"
            self._info = first
        return self._info

    @property
    def language(self) -> str:
        """The code of the language, given or detected."""
        return self.info.language

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None for a stream."""
        return self.info.duration

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the recording, such as that only a part of it could be decoded."""
        return self.info.warnings

    def __next__(self) -> Segment:
        self._info = self.info
        for event in self._events:
            if isinstance(event, SegmentDone):
                return event.segment
        raise StopIteration

    def close(self) -> None:
        """Stop decoding; there are no further segments."""
        self._events.close()

    def __enter__(self) -> Transcription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
