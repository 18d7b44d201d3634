"""Events of a live session, for the terminal, the page and, as JSON lines, other programs.

The events of recognition (pipelines.asr.live) are passed on; those of translation, of speakers and
of the session's state are defined here. Times are seconds from the start of the session.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pipelines import CommittedText, PartialText
from pipelines.asr import CorrectedText, SpeechEnded, SpeechStarted, UpdateDecoded

__all__ = [
    "AudioLost",
    "LanguageNote",
    "SessionEnded",
    "SessionEvent",
    "SpeakerEvent",
    "SpeechEvent",
    "Status",
    "TextSettled",
    "TranslationFinal",
    "TranslationPartial",
    "WarningRaised",
    "as_content",
    "as_json",
    "settles",
    "speaker_and_event",
    "tagged_event",
]


@dataclass(frozen=True)
class TextSettled:
    """Committed text up to a time will not be corrected any more. Programs do not get it.

    Attributes:
        end: the time.
    """

    end: float


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
        doubts: spans of the words of the text of which the model is in doubt, as JavaScript counts
            characters.
    """

    text: str
    start: float
    end: float
    source: str
    doubts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Status:
    """Periodic state of the session.

    Attributes:
        time: seconds of audio processed.
        lag: seconds of audio that have arrived and are not processed yet.
        real_time_factor: compute time over audio time, for the latest audio.
        dropped: seconds of audio lost since the start.
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
class AudioLost:
    """Audio is missing; what was being said ended before it.

    Attributes:
        start: where the gap begins.
        end: where it ends, and audio goes on.
        message: why, for the user.
    """

    start: float
    end: float
    message: str


@dataclass(frozen=True)
class LanguageNote(WarningRaised):
    """A warning about the language of the whole session; programs get it as any other warning."""


@dataclass(frozen=True)
class SessionEnded:
    """The last event.

    Attributes:
        time: seconds of audio processed.
    """

    time: float


SpeechEvent: TypeAlias = (
    SpeechStarted
    | SpeechEnded
    | PartialText
    | CommittedText
    | CorrectedText
    | TextSettled
    | TranslationPartial
    | TranslationFinal
    | WarningRaised
)


@dataclass(frozen=True)
class SpeakerEvent:
    """An event of one speaker, in a session with a channel for each.

    Attributes:
        speaker: the name.
        event: what was said or translated.
    """

    speaker: str
    event: SpeechEvent


SessionEvent: TypeAlias = SpeechEvent | SpeakerEvent | Status | AudioLost | SessionEnded

_TYPES: dict[type, str] = {
    SpeechStarted: "speech_start",
    SpeechEnded: "speech_end",
    PartialText: "partial",
    CommittedText: "committed",
    CorrectedText: "corrected",
    TranslationPartial: "translation_partial",
    TranslationFinal: "translation_final",
    Status: "status",
    WarningRaised: "warning",
    AudioLost: "gap",
    LanguageNote: "warning",
    SessionEnded: "end",
    UpdateDecoded: "decoded",
}


def speaker_and_event(event: SessionEvent) -> tuple[str, SessionEvent]:
    """The name of an event's speaker, "" in a session of one channel, and the event itself."""
    return (event.speaker, event.event) if isinstance(event, SpeakerEvent) else ("", event)


def tagged_event(speaker: str, event: SessionEvent) -> SessionEvent:
    """Return an event with the name of its speaker; "": the event itself."""
    return SpeakerEvent(speaker, event) if speaker else event  # type: ignore[arg-type]


def settles(said: CorrectedText | TextSettled, text: CommittedText) -> bool:
    """Return whether text of the same speaker that may be corrected is settled by an event.

    Text is settled in the order in which it was said.
    """
    start = said.start if isinstance(said, CorrectedText) else 0.0
    return start <= text.start and text.end <= said.end


def as_content(event: SessionEvent | UpdateDecoded) -> dict[str, Any]:
    """The event as a JSON object, "type" first; floats are rounded to three decimals."""
    if isinstance(event, SpeakerEvent):
        content = as_content(event.event)
        return {"type": content.pop("type"), "speaker": event.speaker, **content}
    content = {"type": _TYPES[type(event)], **_rounded(asdict(event))}
    for name in ("doubts", "language"):
        if not content.get(name, True):
            del content[name]
    return content


def as_json(event: SessionEvent | UpdateDecoded) -> str:
    """`as_content` as one line."""
    return json.dumps(as_content(event), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value
