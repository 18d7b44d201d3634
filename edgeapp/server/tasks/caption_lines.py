"""A live session's events → lines on the page, each with its time and its translation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from edgeapp.history import TranslatedCue
from edgeapp.live.corrections import SettledEvents
from edgeapp.live.events import (
    AudioLost,
    LanguageNote,
    SessionEnded,
    SessionEvent,
    Status,
    TextSettled,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    settles,
    speaker_and_event,
)
from edgeapp.subtitles.segmenter import SubtitleSegmenter, ends_sentence
from pipelines import CommittedText, PartialText
from pipelines.asr import CorrectedText, SpeechEnded, SpeechStarted
from pipelines.subtitles import Cue

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
        speaker: The name of who says it; "" in a session of one channel.
        text: Final text.
        tail: Text after it that may still change.
        translation: Final translation, of finished sentences.
        running: Translation of the unfinished sentence, which may still change.
        doubts: Spans of the words of the final translation of which the model is in doubt, as
            JavaScript counts characters.
    """

    id: int
    start: float
    end: float
    speaker: str = ""
    text: str = ""
    tail: str = ""
    translation: str = ""
    running: str = ""
    doubts: tuple[tuple[int, int], ...] = ()


class CaptionLines:
    """The lines and cues of a live session.

    Args:
        corrects: Final text may be corrected: lines are changed then, and there are cues of what
            will not be corrected any more only.

    Attributes:
        corrects: See above.
        lines: All lines so far, in the order in which they began.
        cues: Subtitle cues of the final text.
        translated: Cues of the final translation.
        notes: Messages about the whole session.
    """

    def __init__(self, *, corrects: bool = False) -> None:
        self.corrects = corrects
        self.notes: list[str] = []
        self.lines: list[CaptionLine] = []
        self.cues: list[Cue] = []
        self.translated: list[Cue] = []
        self._speakers: dict[str, _SpeakerLines] = {}

    def update(self, event: SessionEvent) -> Iterator[Message]:
        """Apply an event.

        Yields:
            Messages for the page: every changed line, new cues, status and warnings.
        """
        name, event = speaker_and_event(event)
        if isinstance(event, Status):
            yield {"type": "live_status", **{k: round(v, 2) for k, v in asdict(event).items()}}
        elif isinstance(event, LanguageNote):
            self.notes.append(event.message)
            yield {"type": "live_note", "message": event.message}
        elif isinstance(event, WarningRaised | AudioLost):
            yield {"type": "warning", "message": event.message}
        elif isinstance(event, SessionEnded):
            yield from self.end()
            yield {"type": "live_ended", "time": round(event.time, 2)}
        else:
            speaker = self._speakers.setdefault(name, _SpeakerLines(self, name))
            yield from speaker.update(event)

    def end(self) -> Iterator[Message]:
        """End what is being said: the cues of all final text are complete.

        Yields:
            As `update`.
        """
        for speaker in self._speakers.values():
            yield from speaker.end()

    def copy(self) -> CaptionLines:
        """A copy of the lines, which goes on by itself. It has no cues."""
        other = CaptionLines(corrects=self.corrects)
        other.lines = [replace(line) for line in self.lines]
        other._speakers = {name: each.copy(other) for name, each in self._speakers.items()}
        return other

    def retranslate(self, count: int) -> list[CaptionLine]:
        """Forget the translation, for another language.

        Args:
            count: How many of each speaker's last lines are to be translated again.

        Returns:
            Those lines; translations that follow are of their text first.
        """
        for line in self.lines:
            line.translation = line.running = ""
            line.doubts = ()
        latest = [line for each in self._speakers.values() for line in each.retranslate(count)]
        return sorted(latest, key=lambda line: line.id)

    def open_texts(self) -> list[tuple[CaptionLine, CommittedText]]:
        """The final texts that may be corrected, with the lines that end with them."""
        return [
            (text.line, text.event) for each in self._speakers.values() for text in each.open_texts
        ]

    def held_events(self) -> list[tuple[str, SessionEvent]]:
        """The events that wait for corrections, each with its speaker."""
        return [(name, event) for name, each in self._speakers.items() for event in each.held]


@dataclass
class _OpenText:
    """Final text that may be corrected, and where it is in a line."""

    event: CommittedText
    line: CaptionLine
    start: int
    end: int


class _SpeakerLines:
    """The lines of one speaker among those of the session."""

    def __init__(self, session: CaptionLines, name: str) -> None:
        self._session, self._name = session, name
        self._segmenter = SubtitleSegmenter()
        self._settled = SettledEvents(corrects=session.corrects)
        self.open_texts: list[_OpenText] = []
        self._lines: list[CaptionLine] = []
        # Characters without spaces: they say which line a translated sentence belongs to.
        self._offsets: list[int] = []  # committed before each line
        self._committed = self._translated = 0
        self._open = False  # whether new text continues the last line

    def update(self, event: SessionEvent) -> Iterator[Message]:
        """Apply an event of the speaker; yields messages."""
        if isinstance(event, SpeechStarted):
            self._begin_line(event.time)
        elif isinstance(event, CommittedText):
            yield from self._commit(event)
        elif isinstance(event, PartialText):
            if event.text and not self._open:
                self._begin_line(self._lines[-1].end if self._lines else 0.0)
            yield from self._set_tail(event.text)
        elif isinstance(event, SpeechEnded):
            yield from self._end_utterance()
        elif isinstance(event, CorrectedText | TextSettled):
            yield from self._settle(event)
        elif isinstance(event, TranslationPartial):
            line = self._line_to_translate()
            if self._session.corrects and self._lines:
                # Lines before the incomplete sentence may wait for their correction.
                line = self._lines[-1]
            if line is not None:
                line.running = event.text
                yield line_message(line)
        elif isinstance(event, TranslationFinal):
            yield from self._translate(event)
        yield from self._make_cues(self._settled.add(event))

    @property
    def held(self) -> list[SessionEvent]:
        """The events that wait for corrections."""
        return self._settled.held

    def end(self) -> Iterator[Message]:
        """Make the last line and all text final; yields messages."""
        yield from self._end_utterance()
        self.open_texts.clear()
        yield from self._make_cues(self._settled.end())
        yield from self._add_cues(self._segmenter.flush())

    def _end_utterance(self) -> Iterator[Message]:
        """Make the last line final; yields messages."""
        if self._translated >= self._committed and self._lines and self._lines[-1].running:
            # No final translation will replace that of text that was not committed.
            self._lines[-1].tail = self._lines[-1].running = ""
            yield line_message(self._lines[-1])
        yield from self._set_tail("")
        self._open = False

    def copy(self, session: CaptionLines) -> _SpeakerLines:
        """A copy whose lines are those of another session."""
        other = _SpeakerLines(session, self._name)
        other._lines = [session.lines[line.id] for line in self._lines]
        other._offsets = list(self._offsets)
        other._committed, other._translated = self._committed, self._translated
        other._open = self._open
        for text in self.open_texts:
            other.open_texts.append(replace(text, line=session.lines[text.line.id]))
        for event in self.held:
            other._settled.add(event)
        return other

    def retranslate(self, count: int) -> list[CaptionLine]:
        """The last lines, of whose text the next translations are."""
        latest = self._lines[-count:] if count else []
        self._translated = self._offsets[-len(latest)] if latest else self._committed
        return latest

    def _begin_line(self, start: float) -> None:
        # A last line without text, of an utterance without words, is reused.
        last, lines = (self._lines[-1] if self._lines else None), self._session.lines
        if last is not None and last is lines[-1] and not (last.text or last.tail):
            last.start = last.end = start
        else:
            lines.append(CaptionLine(len(lines), start, start, self._name))
            self._lines.append(lines[-1])
            self._offsets.append(self._committed)
        self._open = True

    def _commit(self, event: CommittedText) -> Iterator[Message]:
        last = self._lines[-1] if self._lines else None
        full = last is not None and len(last.text) > _LONG_LINE and ends_sentence(last.text)
        if not self._open or full:
            if last is not None and (last.tail or last.running):
                last.tail = last.running = ""
                yield line_message(last)
            self._begin_line(event.start)
        line = self._lines[-1]
        before = len(line.text)
        line.text = line.text + event.text if line.text else event.text.lstrip()
        if self._session.corrects:
            self.open_texts.append(_OpenText(event, line, before, len(line.text)))
        line.end = event.end
        # The new tail, if there is one, arrives in an event of its own.
        line.tail = ""
        self._committed += _count_letters(event.text)
        yield line_message(line)

    def _settle(self, event: CorrectedText | TextSettled) -> Iterator[Message]:
        """Replace final text in its lines, if it is corrected; yields messages."""
        own = [text for text in self.open_texts if settles(event, text.event)]
        self.open_texts = [t for t in self.open_texts if not settles(event, t.event)]
        if not own or isinstance(event, TextSettled):
            return
        lines = list({text.line.id: text.line for text in own}.values())
        spans = [
            (
                min(text.start for text in own if text.line is line),
                max(text.end for text in own if text.line is line),
            )
            for line in lines
        ]
        old = [line.text[start:end] for line, (start, end) in zip(lines, spans, strict=True)]
        shares = _shares(event, lines, [_count_letters(text) for text in old])
        for line, (start, end), corrected in zip(lines, spans, shares, strict=True):
            text = (line.text[:start] + corrected + line.text[end:]).lstrip()
            letters = _count_letters(text) - _count_letters(line.text)
            shift = len(text) - len(line.text)
            line.text = text
            for later in self.open_texts:
                if later.line is line:
                    later.start = max(0, later.start + shift)
                    later.end += shift
            self._committed += letters
            at = self._lines.index(line) + 1
            self._offsets[at:] = [offset + letters for offset in self._offsets[at:]]
            yield line_message(line)

    def _make_cues(self, events: Sequence[SessionEvent]) -> Iterator[Message]:
        """Make cues of settled events; yields messages."""
        for event in events:
            if isinstance(event, CommittedText):
                timed = event.text, event.start, event.end, event.words
                yield from self._add_cues(self._segmenter.add(*timed))
            elif isinstance(event, SpeechEnded):
                yield from self._add_cues(self._segmenter.flush())

    def _set_tail(self, text: str) -> Iterator[Message]:
        if self._lines and self._lines[-1].tail != text:
            self._lines[-1].tail = text
            yield line_message(self._lines[-1])

    def _translate(self, event: TranslationFinal) -> Iterator[Message]:
        line = self._line_to_translate()
        self._translated += _count_letters(event.source)
        cue = TranslatedCue(event.start, event.end, event.text, event.doubts, speaker=self._name)
        self._session.translated.append(cue)
        yield _cue_message(cue, translated=True)
        if line is not None:
            begun = f"{line.translation} ".lstrip()
            line.translation = f"{begun}{event.text}".strip()
            at = len(begun.encode("utf-16-le")) // 2
            line.doubts += tuple((at + start, at + end) for start, end in event.doubts)
            line.running = ""
            yield line_message(line)

    def _line_to_translate(self) -> CaptionLine | None:
        """The line of the next translation: sentences are translated in order."""
        for line, offset in zip(reversed(self._lines), reversed(self._offsets), strict=True):
            if offset <= self._translated:
                return line
        return None

    def _add_cues(self, cues: Iterator[Cue]) -> Iterator[Message]:
        for cue in cues:
            self._session.cues.append(replace(cue, speaker=self._name))
            yield _cue_message(self._session.cues[-1], translated=False)


def line_message(line: CaptionLine) -> Message:
    """A line for the page."""
    values = asdict(line) | {"start": round(line.start, 2), "end": round(line.end, 2)}
    return {"type": "live_line", **values}


def _shares(
    event: CorrectedText, lines: Sequence[CaptionLine], letters: Sequence[int]
) -> list[str]:
    """The corrected text of each of the lines, by the times of its words.

    Words without times are divided in proportion to the letters that the lines had.
    """
    if len(lines) == 1:
        return [event.text]
    if event.words:
        starts = [line.start for line in lines]
        placed = [(word.start, word.word) for word in event.words]
    else:
        starts = list(accumulate(letters[:-1], initial=0))
        # A language that is written without spaces is divided anywhere.
        words = re.findall(r"\s*\S+", event.text)
        words = words if len(words) > 1 else list(event.text)
        ends = list(accumulate((_count_letters(word) for word in words), initial=0))
        scale = sum(letters) / max(1, ends[-1])
        middles = [scale * (start + end) / 2 for start, end in pairwise(ends)]
        placed = list(zip(middles, words, strict=True))
    limits = [float("-inf"), *starts[1:], float("inf")]
    return [
        "".join(word for at, word in placed if start <= at < end) for start, end in pairwise(limits)
    ]


def _cue_message(cue: Cue, *, translated: bool) -> Message:
    times = {"start": round(cue.start, 3), "end": round(cue.end, 3)}
    return {"type": "live_cue", **times, "text": cue.text, "speaker": cue.speaker,
            "translated": translated, "doubts": getattr(cue, "doubts", ())}  # fmt: skip


def _count_letters(text: str) -> int:
    return len("".join(text.split()))
