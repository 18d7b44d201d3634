"""A live session's events → lines on the page, each with its time and its translation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.subtitles.formats import Cue
from edgeapp.subtitles.segmenter import SubtitleSegmenter
from pipelines import CommittedText, PartialText, SpeechEnded, SpeechStarted

__all__ = ["CaptionLines", "Line"]

Message = dict[str, Any]

_ENDS = (".", "!", "?", "…", "。", "！", "？")
_CLOSERS = "\"'”’»)]"
# Somebody who never pauses gets a new line after the sentence that passes this many characters.
_LONG = 150


@dataclass
class Line:
    """What is shown under one time. start, end: seconds. tail: may still change. translation: of
    finished sentences; running: of the sentence that is being said."""

    id: int
    start: float
    end: float
    text: str = ""
    tail: str = ""
    translation: str = ""
    running: str = ""


class CaptionLines:
    """Keeps the lines and cues of a session; tells as messages what an event changed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.cues: list[Cue] = []
        self.translated: list[Cue] = []
        self._builder = SubtitleSegmenter()
        self._offsets: list[int] = []  # letters committed before each line
        self._letters = self._letters_translated = 0
        self._open = False

    def take(self, event: SessionEvent) -> Iterator[Message]:
        """The messages that bring the page up to date."""
        if isinstance(event, SpeechStarted):
            self._begin(event.time)
        elif isinstance(event, CommittedText):
            yield from self._commit(event)
        elif isinstance(event, PartialText):
            if event.text and not self._open:
                self._begin(self.lines[-1].end if self.lines else 0.0)
            yield from self._tail(event.text)
        elif isinstance(event, (SpeechEnded, SessionEnded)):
            yield from self._tail("")
            self._open = False
            yield from self._keep(self._builder.flush())
            if isinstance(event, SessionEnded):
                yield {"type": "live_ended", "time": round(event.time, 2)}
        elif isinstance(event, TranslationPartial):
            if (line := self._next_to_translate()) is not None:
                line.running = event.text
                yield _message(line)
        elif isinstance(event, TranslationFinal):
            yield from self._translate(event)
        elif isinstance(event, Status):
            yield {"type": "live_status", **{k: round(v, 2) for k, v in asdict(event).items()}}
        elif isinstance(event, WarningRaised):
            yield {"type": "warning", "message": event.message}

    def _begin(self, start: float) -> None:
        # An utterance in which nothing was understood leaves no empty line behind.
        if self.lines and not (self.lines[-1].text or self.lines[-1].tail):
            self.lines[-1].start = self.lines[-1].end = start
        else:
            self.lines.append(Line(len(self.lines), start, start))
            self._offsets.append(self._letters)
        self._open = True

    def _commit(self, event: CommittedText) -> Iterator[Message]:
        last = self.lines[-1] if self.lines else None
        full = last is not None and len(last.text) > _LONG and _is_over(last.text)
        if not self._open or full:
            if last is not None and (last.tail or last.running):
                last.tail = last.running = ""
                yield _message(last)
            self._begin(event.start)
        line = self.lines[-1]
        line.text = line.text + event.text if line.text else event.text.lstrip()
        line.end = event.end
        # The tail that follows comes with an event of its own, when there is one.
        line.tail = ""
        self._letters += _letters(event.text)
        yield _message(line)
        yield from self._keep(self._builder.add(event.text, event.start, event.end))

    def _tail(self, text: str) -> Iterator[Message]:
        if self.lines and self.lines[-1].tail != text:
            self.lines[-1].tail = text
            yield _message(self.lines[-1])

    def _translate(self, event: TranslationFinal) -> Iterator[Message]:
        line = self._next_to_translate()
        self._letters_translated += _letters(event.source)
        self.translated.append(Cue(event.start, event.end, event.text))
        yield _cue(self.translated[-1], translated=True)
        if line is not None:
            line.translation = f"{line.translation} {event.text}".strip()
            line.running = ""
            yield _message(line)

    def _next_to_translate(self) -> Line | None:
        """Sentences are translated in order, so that counting letters tells whose turn it is."""
        for line, offset in zip(reversed(self.lines), reversed(self._offsets), strict=True):
            if offset <= self._letters_translated:
                return line
        return None

    def _keep(self, cues: Iterator[Cue]) -> Iterator[Message]:
        for cue in cues:
            self.cues.append(cue)
            yield _cue(cue, translated=False)


def _message(line: Line) -> Message:
    values = asdict(line) | {"start": round(line.start, 2), "end": round(line.end, 2)}
    return {"type": "live_line", **values}


def _cue(cue: Cue, *, translated: bool) -> Message:
    times = {"start": round(cue.start, 3), "end": round(cue.end, 3)}
    return {"type": "live_cue", **times, "text": cue.text, "translated": translated}


def _letters(text: str) -> int:
    return len("".join(text.split()))


def _is_over(text: str) -> bool:
    return text.rstrip().rstrip(_CLOSERS).endswith(_ENDS)
