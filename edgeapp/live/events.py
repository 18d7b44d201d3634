"""Events of a live session, for the terminal, the page and, as JSON lines, other programs.

The events of recognition (pipelines.asr.live) are passed on; those of translation and of the
session's state are defined here. Times are seconds from the start of the session.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

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
    "as_content",
    "as_json",
]


@dataclass(frozen=True)
class TranslationPartial:
    """Translation of the running sentence; it replaces the previous one and may change."""

    text: str


@dataclass(frozen=True)
class TranslationFinal:
    """Final translation of a sentence.

    Attributes:
        text: the translation.
        start: when the sentence began.
        end: when it ended.
        source: the sentence.
    """

    text: str
    start: float
    end: float
    source: str


@dataclass(frozen=True)
class Status:
    """Periodic state of the session.

    Attributes:
        time: seconds of audio processed.
        lag: seconds of audio that have arrived and are not processed yet.
        real_time_factor: compute time over audio time, for the latest audio.
        dropped: seconds of audio lost because they were not read in time.
        level: RMS level in dB relative to full scale.
    """

    time: float
    lag: float
    real_time_factor: float
    dropped: float
    level: float


@dataclass(frozen=True)
class WarningRaised:
    """A message for the user; the session continues."""

    message: str


@dataclass(frozen=True)
class SessionEnded:
    """The last event.

    Attributes:
        time: seconds of audio processed.
    """

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


def as_content(event: SessionEvent | UpdateDecoded) -> dict[str, Any]:
    """The event as a JSON object, "type" first; floats are rounded to three decimals."""
    return {"type": _TYPES[type(event)], **_rounded(asdict(event))}


def as_json(event: SessionEvent | UpdateDecoded) -> str:
    """`as_content` as one line."""
    return json.dumps(as_content(event), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value
