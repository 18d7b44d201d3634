"""Cues as text, subtitles and tables, and transcripts as JSON.

txt, vtt, srt, tsv and json have openai-whisper's layouts, lrc and csv those of whisper.cpp; ass and
ttml are written by pysubs2.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from edgeapp.subtitles.direction import with_marks

if TYPE_CHECKING:
    from pipelines import Segment

__all__ = ["CUE_WRITERS", "Cue", "Timed", "Transcript", "stamp", "to_json"]


class Timed(Protocol):
    """Text with a start and an end in seconds: a Segment or a Cue."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Cue:
    """A subtitle: text that is shown from `start` to `end` (seconds).

    Attributes:
        speaker: Who says it; "" if that is not known.
    """

    start: float
    end: float
    text: str
    speaker: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Transcript:
    """The results of a recording.

    Attributes:
        language: Code of the spoken language.
        segments: Recognized segments, or cues where only text and times were stored.
        translation: Cues in `translation_language`.
        translation_language: Code of the target language; None without a translation.
    """

    language: str
    segments: tuple[Segment | Cue, ...]
    translation: tuple[Cue, ...] = ()
    translation_language: str | None = None


def stamp(seconds: float, *, hours: bool, mark: str) -> str:
    """Seconds as HH:MM:SS and milliseconds.

    Args:
        seconds: The time.
        hours: Write the hours even where they are 0.
        mark: Decimal mark before the milliseconds.
    """
    ms = max(0, round(seconds * 1000))
    h, rest = divmod(ms, 3_600_000)
    m, rest = divmod(rest, 60_000)
    lead = f"{h:02d}:" if hours or h else ""
    return f"{lead}{m:02d}:{rest // 1000:02d}{mark}{rest % 1000:03d}"


def _non_empty(cues: Sequence[Timed]) -> list[tuple[Timed, str]]:
    """Cues that have text, with their text; "-->" in it would be read as a timing line."""
    return [(cue, text.replace("-->", "->")) for cue in cues if (text := cue.text.strip())]


def _txt(cues: Sequence[Timed]) -> str:
    return "".join(f"{cue.text.strip()}\n" for cue in cues if cue.text.strip())


def _vtt(cues: Sequence[Timed]) -> str:
    parts = ["WEBVTT\n\n"]
    for cue, text in _non_empty(cues):
        start, end = (stamp(t, hours=False, mark=".") for t in (cue.start, cue.end))
        parts.append(f"{start} --> {end}\n{text}\n\n")
    return "".join(parts)


def _srt(cues: Sequence[Timed]) -> str:
    parts = []
    for number, (cue, text) in enumerate(_non_empty(cues), start=1):
        start, end = (stamp(t, hours=True, mark=",") for t in (cue.start, cue.end))
        parts.append(f"{number}\n{start} --> {end}\n{with_marks(text, 'srt')}\n\n")
    return "".join(parts)


def _tsv(cues: Sequence[Timed]) -> str:
    lines = ["start\tend\ttext\n"]
    for cue in cues:
        if text := cue.text.strip().replace("\t", " "):
            lines.append(f"{round(1000 * cue.start)}\t{round(1000 * cue.end)}\t{text}\n")
    return "".join(lines)


def _lrc(cues: Sequence[Timed]) -> str:
    """Lyrics: the start of each line in minutes and hundredths of a second."""
    parts = []
    for cue, text in _non_empty(cues):
        minutes, hundredths = divmod(max(0, round(100 * cue.start)), 6000)
        time = f"{minutes:02d}:{hundredths // 100:02d}.{hundredths % 100:02d}"
        parts.append(f"[{time}]{' '.join(text.split())}\n")
    return "".join(parts)


def _csv(cues: Sequence[Timed]) -> str:
    """Start and end in milliseconds, then the text in quotes."""
    table = io.StringIO()
    table.write("start,end,text\n")
    writer = csv.writer(table, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for cue in cues:
        if text := cue.text.strip():
            writer.writerow((round(1000 * cue.start), round(1000 * cue.end), text))
    return table.getvalue()


def _ass(cues: Sequence[Timed]) -> str:
    from edgeapp.subtitles.pysubs_formats import to_ass

    return to_ass(cues)


def _ttml(cues: Sequence[Timed]) -> str:
    from edgeapp.subtitles.pysubs_formats import to_ttml

    return to_ttml(cues)


CUE_WRITERS: Mapping[str, Callable[[Sequence[Timed]], str]] = {
    "txt": _txt,
    "vtt": _vtt,
    "srt": _srt,
    "tsv": _tsv,
    "lrc": _lrc,
    "csv": _csv,
    "ass": _ass,
    "ttml": _ttml,
}
"""Format → what writes cues in it."""


def _record(segment: Segment | Cue) -> dict[str, object]:
    """A segment as in openai-whisper's JSON: "words" only with word timestamps, "alternatives" and
    "token_logprobs" only where they were asked for, "speaker" (as in whisperX's) only where it is
    known."""
    record = asdict(segment)
    for name in ("words", "alternatives", "token_logprobs", "speaker"):
        if not record.get(name, True):
            del record[name]
    record.pop("doubts", None)  # marks of the page
    return record


def to_json(transcript: Transcript, pretty: bool = False) -> str:
    """A transcript as openai-whisper's JSON ("text", "segments" and "language"), with
    "translation" where there is one. pretty: indented."""
    content: dict[str, object] = {
        "text": "".join(segment.text for segment in transcript.segments),
        "segments": [_record(segment) for segment in transcript.segments],
        "language": transcript.language,
    }
    if transcript.translation_language is not None:
        content["translation"] = {
            "language": transcript.translation_language,
            "text": " ".join(cue.text for cue in transcript.translation),
            "segments": [_record(cue) for cue in transcript.translation],
        }
    return json.dumps(content, ensure_ascii=False, indent=4 if pretty else None)
