"""What a live session says, to the terminal, to pages and, as JSON lines, to programs.

Recognition's own events (pipelines.asr) are passed on; translation and the session's state are
added here. Times are seconds from the start of the session.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypeAlias

from pipelines import (
    CommittedText,
    PartialText,
    SpeechEnded,
    SpeechStarted,
    UpdateDecoded,
)

__all__ = [
    "SessionEnded",
    "SessionEvent",
    "Status",
    "TranslationFinal",
    "TranslationPartial",
    "WarningRaised",
    "as_json",
]


@dataclass(frozen=True)
class TranslationPartial:
    """The running sentence in the other language, replacing the one before."""

    text: str


@dataclass(frozen=True)
class TranslationFinal:
    """A sentence in the other language, for good. source: what it translates."""

    text: str
    start: float
    end: float
    source: str


@dataclass(frozen=True)
class Status:
    """Where the session stands.

    time: seconds of audio heard. lag: seconds that have arrived and wait to be worked on.
    real_time_factor: work over audio, of late. dropped: seconds lost because nobody fetched them
    in time. level: loudness in dB below full scale.
    """

    time: float
    lag: float
    real_time_factor: float
    dropped: float
    level: float


@dataclass(frozen=True)
class WarningRaised:
    """Something that the listener should know; the session goes on."""

    message: str


@dataclass(frozen=True)
class SessionEnded:
    """The last event. time: seconds of audio heard."""

    time: float


SessionEvent: TypeAlias = (
    SpeechStarted
    | SpeechEnded
    | PartialText
    | CommittedText
    | TranslationPartial
    | TranslationFinal
    | Status
    | WarningRaised
    | SessionEnded
)

_TYPES: dict[type, str] = {
    SpeechStarted: "speech_start",
    SpeechEnded: "speech_end",
    PartialText: "partial",
    CommittedText: "committed",
    TranslationPartial: "translation_partial",
    TranslationFinal: "translation_final",
    Status: "status",
    WarningRaised: "warning",
    SessionEnded: "end",
    UpdateDecoded: "decoded",
}


def as_json(event: SessionEvent | UpdateDecoded) -> str:
    """One line of JSON, its "type" first; times to the millisecond."""
    values = {
        key: round(value, 3) if isinstance(value, float) else value
        for key, value in asdict(event).items()
    }
    return json.dumps({"type": _TYPES[type(event)], **values}, ensure_ascii=False)
