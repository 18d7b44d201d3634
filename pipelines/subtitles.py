"""Cues as text, subtitles and tables, and transcripts as JSON.

txt, vtt, srt, tsv and json have openai-whisper's layouts, lrc and csv those of whisper.cpp; ass and
ttml are written by pysubs2.

Players of srt and ass files lay a line out from left to right, so that a full stop at the end of a
line of Hebrew or Arabic is shown at its beginning. A mark of direction beyond it prevents that.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from pipelines.errors import OptionError

__all__ = [
    "CUE_WRITERS",
    "SPACES",
    "Cue",
    "Timed",
    "Transcript",
    "check_format_name",
    "edge_marks",
    "is_right_to_left",
    "karaoke",
    "render",
    "stamp",
    "to_json",
    "with_marks",
    "without_edge_marks",
]

_MARK = "\u200f"
_MARKED_FORMATS = ("srt", "ass", "ssa")
_SINGLE = "\u061c\u200e\u200f"
_OPENING, _CLOSING = "\u202a\u202b\u202d\u202e\u2066\u2067\u2068", "\u202c\u2069"
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_TAG = re.compile(r"<[^<>\n]*>|\{[^{}\n]*\}")
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space."""
_NEUTRAL = ("EN", "ES", "ET", "AN", "CS", "B", "S", "WS", "ON")  # classes of UAX #9


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
        speaker: Who says it; "" if that is not known. Only JSON has it.
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
    segments: tuple[Timed, ...]
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


def to_ass(cues: Sequence[Timed]) -> str:
    """Cues of plain text as an ass file."""
    return _ass_file((cue, _ass_text(cue.text.strip())) for cue in cues)


def to_ttml(cues: Sequence[Timed]) -> str:
    """Cues of plain text as a ttml file."""
    from pysubs2 import SSAEvent, SSAFile

    file = SSAFile()
    for cue in cues:
        if text := _ass_text(cue.text.strip()):
            start, end = round(1000 * cue.start), round(1000 * cue.end)
            file.events.append(SSAEvent(start=start, end=end, text=text))
    return file.to_string("ttml")


def karaoke(cues: Iterable[tuple[Timed, Sequence[Timed]]]) -> str:
    """An ass file in which each word is highlighted while it is spoken (\\k tags).

    Args:
        cues: Cues with their words, whose texts are those of the cue but for spaces.
    """
    return _ass_file((cue, _karaoke_text(cue, words)) for cue, words in cues)


def _ass_file(cues: Iterable[tuple[Timed, str]]) -> str:
    """Return an ass file of cues with their texts: pysubs2 writes what stands before the cues.

    It sets all times beyond ten hours to 9:59:59.99. libass, mpv and VLC read more digits.
    """
    from pysubs2 import SSAFile

    lines = [
        f"Dialogue: 0,{_ass_time(cue.start)},{_ass_time(cue.end)},Default,,0,0,0,,{marked}\n"
        for cue, text in cues
        if (marked := with_marks(text.replace("\\N", "\n"), "ass").replace("\n", "\\N"))
    ]
    return SSAFile().to_string("ass") + "".join(lines)


def _ass_time(seconds: float) -> str:
    """Return a time as H:MM:SS.cc, with as many digits of hours as it needs."""
    hundredths = max(0, (round(1000 * seconds) + 5) // 10)
    minutes, rest = divmod(hundredths, 6000)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 100:02d}.{rest % 100:02d}"


def _ass_text(text: str) -> str:
    """Plain text in ass, where braces hold tags and a backslash begins one.

    Braces have no escape that all players read; a word joiner ends what a backslash would begin.
    """
    text = text.replace("\\", "\\\u2060").replace("{", "(").replace("}", ")")
    return text.replace("\n", "\\N")


def _karaoke_text(cue: Timed, words: Sequence[Timed]) -> str:
    """The text of a cue with the time of each word, in hundredths of a second from its start."""
    parts: list[str] = []
    position = spoken = 0
    for word in words:
        text = word.text.strip()
        begin = cue.text.index(text, position)
        start = max(spoken, round(100 * (word.start - cue.start)))
        end = max(start, round(100 * (word.end - cue.start)))
        if start > spoken:
            parts.append(f"{{\\k{start - spoken}}}")
        parts.append(_ass_text(cue.text[position:begin]))
        parts.append(f"{{\\k{end - start}}}{_ass_text(text)}")
        position, spoken = begin + len(text), end
    parts.append(_ass_text(cue.text[position:]))
    return "".join(parts)


def with_marks(text: str, format: str, kept: tuple[str, str] = ("", "")) -> str:
    """Return lines with marks around those of right-to-left text.

    Args:
        text: Lines, which may have tags.
        format: In srt and ass, a line that begins or ends with a digit or a punctuation mark gets
            a right-to-left mark there.
        kept: The marks around the lines that the text translates: they are put around its own.
    """
    if not _RIGHT_TO_LEFT.search(text):
        return text
    return "\n".join(_marked(line, format, kept) for line in text.split("\n"))


def _marked(line: str, format: str, kept: tuple[str, str]) -> str:
    shown = _TAG.sub("", line).strip()
    if not is_right_to_left(shown):
        return line
    classes = [each for c in shown if (each := unicodedata.bidirectional(c)) not in ("NSM", "BN")]
    before, after = (
        mark or (_MARK if format in _MARKED_FORMATS and edge in _NEUTRAL else "")
        for mark, edge in zip(kept, (classes[0], classes[-1]), strict=True)
    )
    return f"{before}{line}{after}"


def is_right_to_left(text: str) -> bool:
    """Whether more letters of a text are of right-to-left scripts than of others."""
    classes = [unicodedata.bidirectional(c) for c in text if c.isalpha()]
    return sum(each in ("R", "AL") for each in classes) > len(classes) / 2


def edge_marks(line: str) -> tuple[str, str]:
    """Return the marks at the beginning and the end of a line, which enclose it as a whole."""
    before = line[: len(line) - len(line.lstrip(SPACES + _SINGLE + _OPENING))]
    after = line[len(line.rstrip(SPACES + _SINGLE + _CLOSING)) :]
    if sum(c in _OPENING for c in before) != sum(c in _CLOSING for c in after):
        # One encloses a part of the line only.
        before = line[: len(line) - len(line.lstrip(SPACES + _SINGLE))]
        after = line[len(line.rstrip(SPACES + _SINGLE)) :]
    return "".join(before.split()), "".join(after.split())


def without_edge_marks(line: str) -> str:
    """Return a line without white space and marks at its ends."""
    before, after = edge_marks(line)
    return line.lstrip(SPACES + before).rstrip(SPACES + after)


CUE_WRITERS: Mapping[str, Callable[[Sequence[Timed]], str]] = {
    "txt": _txt,
    "vtt": _vtt,
    "srt": _srt,
    "tsv": _tsv,
    "lrc": _lrc,
    "csv": _csv,
    "ass": to_ass,
    "ttml": to_ttml,
}
"""Format → what writes cues in it."""


def _record(segment: Any) -> dict[str, object]:
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


def check_format_name(format: str) -> None:
    """Raise OptionError if `format` is not one of CUE_WRITERS, or "json"."""
    if format not in (*CUE_WRITERS, "json"):
        raise OptionError(f"format {format!r} is not one of {', '.join((*CUE_WRITERS, 'json'))}")


def render(transcript: Transcript, format: str) -> str:
    """Return the content of a transcript's file in a format of `check_format_name`.

    JSON has all fields of the cues, which have to be dataclasses. Other formats need times and
    text.
    """
    check_format_name(format)
    return to_json(transcript) if format == "json" else CUE_WRITERS[format](transcript.segments)
