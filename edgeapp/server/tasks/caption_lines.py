"""A live session's events → lines on the page, each with its time and its translation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
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
from edgeapp.subtitles.segmenter import SubtitleSegmenter, ends_sentence
from pipelines import CommittedText, PartialText, SpeechEnded, SpeechStarted

__all__ = ["CaptionLine", "CaptionLines", "line_message"]

Message = dict[str, Any]

# In speech without pauses, a new line begins after the sentence that exceeds this length.
_LONG_LINE = 150  # characters


@dataclass
class CaptionLine:
    """A line of captions.

    Attributes:
        id: Its index.
        start: Seconds since the start of the session.
        end: Seconds since the start of the session.
        text: Final text.
        tail: Text after it that may still change.
        translation: Final translation, of finished sentences.
        running: Translation of the unfinished sentence, which may still change.
    """

    id: int
    start: float
    end: float
    text: str = ""
    tail: str = ""
    translation: str = ""
    running: str = ""


class CaptionLines:
    """The lines and cues of a live session.

    Attributes:
        lines: All lines so far.
        cues: Subtitle cues of the final text.
        translated: Cues of the final translation.
    """

    def __init__(self) -> None:
        self.lines: list[CaptionLine] = []
        self.cues: list[Cue] = []
        self.translated: list[Cue] = []
        self._segmenter = SubtitleSegmenter()
        # Characters without spaces: they say which line a translated sentence belongs to.
        self._offsets: list[int] = []  # committed before each line
        self._committed = self._translated = 0
        self._open = False  # whether new text continues the last line

    def update(self, event: SessionEvent) -> Iterator[Message]:
        """Apply an event.

        Yields:
            Messages for the page: every changed line, new cues, status and warnings.
        """
        if isinstance(event, SpeechStarted):
            self._begin_line(event.time)
        elif isinstance(event, CommittedText):
            yield from self._commit(event)
        elif isinstance(event, PartialText):
            if event.text and not self._open:
                self._begin_line(self.lines[-1].end if self.lines else 0.0)
            yield from self._set_tail(event.text)
        elif isinstance(event, (SpeechEnded, SessionEnded)):
            yield from self._set_tail("")
            self._open = False
            yield from self._add_cues(self._segmenter.flush())
            if isinstance(event, SessionEnded):
                yield {"type": "live_ended", "time": round(event.time, 2)}
        elif isinstance(event, TranslationPartial):
            if (line := self._line_to_translate()) is not None:
                line.running = event.text
                yield line_message(line)
        elif isinstance(event, TranslationFinal):
            yield from self._translate(event)
        elif isinstance(event, Status):
            yield {"type": "live_status", **{k: round(v, 2) for k, v in asdict(event).items()}}
        elif isinstance(event, WarningRaised):
            yield {"type": "warning", "message": event.message}

    def copy(self) -> CaptionLines:
        """A copy of the lines, which goes on by itself. It has no cues."""
        other = CaptionLines()
        other.lines = [replace(line) for line in self.lines]
        other._offsets = list(self._offsets)
        other._committed, other._translated = self._committed, self._translated
        other._open = self._open
        return other

    def retranslate(self, count: int) -> list[CaptionLine]:
        """Forget the translation, for another language.

        Args:
            count: How many of the last lines are to be translated again.

        Returns:
            Those lines; translations that follow are of their text first.
        """
        for line in self.lines:
            line.translation = line.running = ""
        latest = self.lines[-count:]
        self._translated = self._offsets[-len(latest)] if latest else self._committed
        return latest

    def _begin_line(self, start: float) -> None:
        # A last line without text, of an utterance without words, is reused.
        if self.lines and not (self.lines[-1].text or self.lines[-1].tail):
            self.lines[-1].start = self.lines[-1].end = start
        else:
            self.lines.append(CaptionLine(len(self.lines), start, start))
            self._offsets.append(self._committed)
        self._open = True

    def _commit(self, event: CommittedText) -> Iterator[Message]:
        last = self.lines[-1] if self.lines else None
        full = last is not None and len(last.text) > _LONG_LINE and ends_sentence(last.text)
        if not self._open or full:
            if last is not None and (last.tail or last.running):
                last.tail = last.running = ""
                yield line_message(last)
            self._begin_line(event.start)
        line = self.lines[-1]
        line.text = line.text + event.text if line.text else event.text.lstrip()
        line.end = event.end
        # The new tail, if there is one, arrives in an event of its own.
        line.tail = ""
        self._committed += _count_letters(event.text)
        yield line_message(line)
        yield from self._add_cues(self._segmenter.add(event.text, event.start, event.end))

    def _set_tail(self, text: str) -> Iterator[Message]:
        if self.lines and self.lines[-1].tail != text:
            self.lines[-1].tail = text
            yield line_message(self.lines[-1])

    def _translate(self, event: TranslationFinal) -> Iterator[Message]:
        line = self._line_to_translate()
        self._translated += _count_letters(event.source)
        self.translated.append(Cue(event.start, event.end, event.text))
        yield _cue_message(self.translated[-1], translated=True)
        if line is not None:
            line.translation = f"{line.translation} {event.text}".strip()
            line.running = ""
            yield line_message(line)

    def _line_to_translate(self) -> CaptionLine | None:
        """The line of the next translation: sentences are translated in order."""
        for line, offset in zip(reversed(self.lines), reversed(self._offsets), strict=True):
            if offset <= self._translated:
                return line
        return None

    def _add_cues(self, cues: Iterator[Cue]) -> Iterator[Message]:
        for cue in cues:
            self.cues.append(cue)
            yield _cue_message(cue, translated=False)


def line_message(line: CaptionLine) -> Message:
    """A line for the page."""
    values = asdict(line) | {"start": round(line.start, 2), "end": round(line.end, 2)}
    return {"type": "live_line", **values}


def _cue_message(cue: Cue, *, translated: bool) -> Message:
    times = {"start": round(cue.start, 3), "end": round(cue.end, 3)}
    return {"type": "live_cue", **times, "text": cue.text, "translated": translated}


def _count_letters(text: str) -> int:
    return len("".join(text.split()))
