"""What a live session tells: plain frozen data. Times are seconds from the start of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "CommittedText",
    "UpdateDecoded",
    "LiveEvent",
    "PartialText",
    "SpeechEnded",
    "SpeechStarted",
]


@dataclass(frozen=True)
class SpeechStarted:
    """Somebody speaks, from about `time` on."""

    time: float


@dataclass(frozen=True)
class SpeechEnded:
    """A pause; all that was said before it has been committed."""

    time: float


@dataclass(frozen=True)
class PartialText:
    """The whole uncommitted tail, replacing the one before; it may still change."""

    text: str


@dataclass(frozen=True)
class CommittedText:
    """New text that will not change any more. It begins with the space that parts it, if any."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class UpdateDecoded:
    """What an update cost. audio: seconds in the buffer. tokens: of the hypothesis; drafted: of
    the hypothesis before, accepted: of these, verified rather than decoded."""

    audio: float
    tokens: int
    drafted: int
    accepted: int


LiveEvent: TypeAlias = SpeechStarted | SpeechEnded | PartialText | CommittedText | UpdateDecoded
