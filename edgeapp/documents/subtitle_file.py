"""Subtitle files: cues with their times, and everything around them as it stands in the file.

Only the text of a cue is ever replaced. Numbers, times, positions, styles and comments of srt, vtt,
ass, MicroDVD, lrc and SAMI files stay as they are; other formats are read and written by pysubs2.
Files are written in UTF-8, with the line ending that the file mostly has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.console import print_note
from edgeapp.documents.text_encoding import (
    NO_HINT,
    EncodingHint,
    decode_text,
    read_bytes,
    stated_encoding,
    text_of_head,
)
from pipelines import InputError
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pysubs2 import SSAFile

__all__ = [
    "SUBTITLE_SUFFIXES",
    "SubtitleFile",
    "is_subtitle_file",
    "parse",
    "read",
    "subtitle_format",
]

_MAX_BYTES = 64 << 20  # a film of three hours has 200 kB

# Sign, hours, minutes, seconds and their decimals. Shifted files have negative times, streams have
# thousands of hours, and files written by hand often lack the decimals.
_TIME = r"(-?)(?:(\d{1,7}):)?(\d{1,2}):(\d{1,2})(?:[,.](\d*))?"
_ARROW = r"[ \t]*(?:[-–—−]+[ \t]?>|→)[ \t]*"  # word processors turn two hyphens into a dash
_TIMING_LINE = re.compile(rf"^[ \t]*{_TIME}{_ARROW}{_TIME}(?![\d:,.])[^\n]*$", re.MULTILINE)
# Lines that give times in a way that _TIMING_LINE does not know.
_LIKE_TIMING_LINE = re.compile(
    r"^(?:[^\n]*-->[^\n]*"
    rf"|[ \t]*-?\d+:\d+:\d+(?:[,.]\d*)?{_ARROW}[^\n]*"
    r"|[ \t]*-?\d+:\d+:\d+(?:[^\w\n]{2,}|[^\w\n]+\d+[^\w\n]+)\d+:\d+:\d+[^\n]*)$",
    re.MULTILINE,
)
_BEGINNINGS = {
    "vtt": re.compile(r"WEBVTT(\s|$)"),
    "srt": re.compile(rf"\s*\d+[ \t]*\r?\n[ \t]*{_TIME}{_ARROW}"),
    "ass": re.compile(r"\s*\[script info\]", re.IGNORECASE),
    "ttml": re.compile(r"\s*(<\?xml[^>]*>\s*)?<tt[\s>]"),
    "smi": re.compile(r"\s*<sami\b", re.IGNORECASE),
    "sub": re.compile(r"\s*\{\d+\}\{\d*\}"),
    "mpl": re.compile(r"\s*\[\d+\]\[\d+\]"),
    # With decimals: "[12:30] Anna: Hello." and "[12:30:15] Hello." are lines of a chat.
    "lrc": re.compile(r"\s*(?:\[[a-z#]+:[^\]\n]*\]\s*)*\[\d+:\d\d\.\d+\]", re.IGNORECASE),
}
# What a timing line has before its arrow, even a damaged one: "Chapter 5 --> Chapter 6" is a text.
_LIKE_TIME = re.compile(r"\W*\d|.*\d\s*[:;,]\s*\d")
_MICRODVD_LINE = re.compile(r"^ *\{ *(-?\d+) *\} *\{ *(-?\d*) *\}(.*)$", re.MULTILINE)
_MPL_LINE = re.compile(r"^ *\[-?\d+\] *\[-?\d+\]", re.MULTILINE)
_LRC_TAG = r"\[(-?)(?:(\d{1,7}):)?(\d{1,7}):(\d{1,2})(?:[.,:](\d+))?\]"
_LRC_LINE = re.compile(rf"^[ \t]*{_LRC_TAG}(?:[ \t]*{_LRC_TAG})*[ \t]*(.*)$", re.MULTILINE)
_LRC_OTHER = re.compile(r"[ \t]*\[[A-Za-z#][^\]]*\]")  # artist, title, offset …
_SAMI_SYNC = re.compile(
    r"<sync\b[^<>]*?\bstart\s*=\s*[\"']?\s*(-?\d{1,12})(?!\d)[^<>]*>", re.IGNORECASE
)
_SAMI_BLOCK_END = re.compile(r"<sync\b|</sync\b|</body\b|</sami\b|\Z", re.IGNORECASE)
_SAMI_PARAGRAPH = re.compile(
    r"<p\b(?:[^<>]*?\bclass\s*=\s*[\"']?([\w-]+))?[^<>]*>((?:(?!</?p\b).)*)",
    re.IGNORECASE | re.DOTALL,
)
_ALL = re.compile(r"()(.+)", re.DOTALL)  # what has no <p> is one paragraph without a class
_LAST_CUE_S = 5.0  # of formats that say when a cue begins, but not when it ends
_FRAME_RATE = 25.0  # frames per second, where a MicroDVD file names none
_ASS_TIME = re.compile(_TIME)
_ASS_DIALOGUE = re.compile(r"^Dialogue:[ \t]*", re.MULTILINE)


@dataclass(frozen=True)
class SubtitleFile:
    """A subtitle file.

    Attributes:
        format: Its suffix without the dot: srt, vtt, ass …
        cues: Its cues in the order of the file. The text has the markup of the format.
        between: The text before each cue's text, and last the text after all: one more than cues.
            Empty for formats that pysubs2 writes.
        newline: Its line ending; the texts have line feeds.
        byte_order_mark: Whether it began with one.
        write: Writes the texts of all cues, for formats that pysubs2 writes.
    """

    format: str
    cues: tuple[Cue, ...]
    between: tuple[str, ...] = ()
    newline: str = "\n"
    byte_order_mark: bool = False
    write: Callable[[Sequence[str]], str] | None = None

    def render(self, texts: Sequence[str]) -> bytes:
        """The file with other texts.

        Args:
            texts: One for each cue, with the markup of the format.
        """
        if self.write is not None:
            content = self.write(texts)
        else:
            pairs = zip(self.between, texts, strict=False)
            content = "".join(part for pair in pairs for part in pair) + self.between[-1]
        content = content.replace("\n", self.newline)
        return (b"\xef\xbb\xbf" if self.byte_order_mark else b"") + content.encode()


def is_subtitle_file(name: str) -> bool:
    """Whether a name has the suffix of a subtitle format."""
    return Path(name).suffix.lower() in SUBTITLE_SUFFIXES


def subtitle_format(head: bytes, hint: EncodingHint = NO_HINT) -> str | None:
    """The format of subtitles by the first bytes of a file: srt, vtt, ass …; else None."""
    text = text_of_head(head, hint)
    return next((name for name, begins in _BEGINNINGS.items() if begins.match(text)), None)


def read(path: Path, hint: EncodingHint = NO_HINT) -> SubtitleFile:
    """Read a subtitle file.

    Args:
        path: The file.
        hint: What is known about its encoding.

    Raises:
        InputError: It cannot be read, is no text, or has no cue.
    """
    content = read_bytes(path, _MAX_BYTES, "too large for subtitles")
    return parse(content, path.suffix.lower().removeprefix("."), str(path), hint)


def parse(content: bytes, format: str, name: str, hint: EncodingHint = NO_HINT) -> SubtitleFile:
    """Parse the content of a subtitle file.

    Args:
        content: The file, in any encoding that `decode_text` knows.
        format: The suffix without the dot.
        name: Name for errors.
        hint: What is known about its encoding.

    Raises:
        InputError: It is too large, is no text, or has no cue.
    """
    if len(content) > _MAX_BYTES:
        raise InputError(f"{name} has more than {_MAX_BYTES >> 20} MB: too large for subtitles")
    stated = stated_encoding(content[:8192]) or hint.encoding
    if b"\0" in content[:8192] and (stated is None or not stated.wide):
        raise InputError(f"{name} holds binary data, not subtitles")
    text, encoding = decode_text(content, name, markup=True, hint=hint)
    mark = encoding.mark == b"\xef\xbb\xbf"
    newline = "\r\n" if "\r\n" in text else "\n"
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parser = _PARSERS.get(format, _parse_other)
    try:
        parsed = parser(text, format)
    except Exception as error:
        # pysubs2 raises whatever it meets in a damaged file.
        if f".{format}" not in SUBTITLE_SUFFIXES:
            raise InputError(
                f"{name} is no subtitle file; their names end with {', '.join(SUBTITLE_SUFFIXES)}"
            ) from error
        raise InputError(f"{name} cannot be read as {format}: {error}") from error
    if not parsed.cues:
        raise InputError(f"{name} has no subtitle with a time: is it really {format}?")
    return replace(parsed, newline=newline, byte_order_mark=mark)


def _seconds(
    sign: str, hours: str | None, minutes: str, seconds: str, decimals: str | None
) -> float:
    """Return the time that the groups of _TIME give."""
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return (-1 if sign else 1) * (whole + float(f"0.{decimals or 0}"))


def _not_understood(text: str, at: int) -> ValueError:
    """Return the error for a line whose times are not understood.

    Args:
        text: The whole file.
        at: Position of a character of the line.
    """
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()
    number = text.count("\n", 0, at) + 1
    return ValueError(f"line {number}: its times are not understood: {line[:80]}")


def _parse_timed_blocks(text: str, format: str) -> SubtitleFile:
    """srt and vtt: a timing line, then text up to the block of the next cue."""
    timings = list(_TIMING_LINE.finditer(text))
    _check_for_other_timings(text, format, timings)
    cues: list[Cue] = []
    between: list[str] = []
    at = 0
    for index, timing in enumerate(timings):
        begin = min(timing.end() + 1, len(text))
        end = timings[index + 1].start() if index + 1 < len(timings) else len(text)
        body = text[begin:end]
        size = _vtt_text(body) if format == "vtt" else _srt_text(body, index + 1 < len(timings))
        groups = timing.groups()
        cues.append(Cue(_seconds(*groups[:5]), _seconds(*groups[5:]), body[:size]))
        between.append(text[at:begin])
        at = begin + size
    return SubtitleFile(format, tuple(cues), (*between, text[at:]))


def _check_for_other_timings(text: str, format: str, timings: Sequence[re.Match[str]]) -> None:
    """Raise ValueError for a timing line that is not understood.

    Its cue would be read as text of the cue before it. In srt an arrow may stand in what is said
    ("Paris --> London"): the line then has no time and follows other text.
    """
    understood = {timing.start() for timing in timings}
    for line in _LIKE_TIMING_LINE.finditer(text):
        if line.start() in understood:
            continue
        end = max(0, line.start() - 1)  # of the line before
        before = text[text.rfind("\n", 0, end) + 1 : end].strip()
        if format == "vtt" or _LIKE_TIME.match(line[0]) or not before or before.isdigit():
            raise _not_understood(text, line.start())


def _vtt_text(body: str) -> int:
    """Length of the text of a WebVTT cue: it ends at the first empty line."""
    if body.startswith("\n"):
        return 0
    end = body.find("\n\n")
    return end if end >= 0 else len(body.rstrip("\n"))


_NUMBER_AT_END = re.compile(r"\n[ \t]*\d+[ \t]*\n\Z")


def _srt_text(body: str, followed: bool) -> int:
    """Length of the text of an srt cue; empty lines inside are a part of it.

    Args:
        body: Text up to the next timing line or the end.
        followed: A timing line follows, so that the last line is a number.
    """
    if followed:
        # The first cue line of an empty cue would be the number: keep one line feed before it.
        number = _NUMBER_AT_END.search("\n" + body)
        if number is not None:
            body = ("\n" + body)[: number.start()][1:]
    return len(body.rstrip())


def _parse_ass(text: str, format: str) -> SubtitleFile:
    """ass and ssa: Dialogue lines; the text is the last of the fields that Format names."""
    fields = _ass_fields(text)
    cues: list[Cue] = []
    between: list[str] = []
    at = 0
    for line in _ASS_DIALOGUE.finditer(text):
        end = text.find("\n", line.end())
        end = len(text) if end < 0 else end
        values = text[line.end() : end].split(",", len(fields) - 1)
        named = dict(zip(fields, values, strict=False))
        times = [_ASS_TIME.fullmatch(named.get(key, "").strip()) for key in ("start", "end")]
        if len(values) < len(fields) or not (times[0] and times[1]):
            raise _not_understood(text, line.start())
        start, stop = _seconds(*times[0].groups()), _seconds(*times[1].groups())
        begin = end - len(values[-1])
        # A line break in an ass text is \N; layouts use line feeds.
        cues.append(Cue(start, stop, values[-1]))
        between.append(text[at:begin])
        at = end
    return SubtitleFile(format, tuple(cues), (*between, text[at:]))


def _ass_fields(text: str) -> list[str]:
    """The names of the fields of a Dialogue line."""
    events = text.lower().find("[events]")
    found = re.compile(r"^format:(.*)$", re.MULTILINE | re.IGNORECASE).search(text, max(events, 0))
    if found is None or events < 0:
        return "layer start end style name marginl marginr marginv effect text".split()
    return [field.strip().lower() for field in found[1].split(",")]


def _parse_microdvd(text: str, format: str) -> SubtitleFile:
    """MicroDVD: lines with the numbers of two frames; the first may name the frame rate."""
    lines = list(_MICRODVD_LINE.finditer(text))
    if not lines:
        return replace(_parse_other(text, format), format="ass")  # the markup of pysubs2
    _check_lines(text, re.compile(rf"{_MICRODVD_LINE.pattern}|^ *\{{DEFAULT\}}", re.MULTILINE))
    rate = _frame_rate(lines[0])
    if rate is None:
        print_note(
            f"no frame rate is named: reading speed is computed for {_FRAME_RATE:g} a second"
        )
    else:
        del lines[0]
    rate = rate or _FRAME_RATE
    found = _without_ends(
        text, format, [int(line[1]) / rate for line in lines], [line.span(3) for line in lines]
    )
    cues = tuple(
        replace(cue, end=int(line[2]) / rate) if line[2] else cue
        for cue, line in zip(found.cues, lines, strict=True)
    )
    return replace(found, cues=cues)


def _check_lines(text: str, understood: re.Pattern[str]) -> None:
    """Raise ValueError for a line that has text, but no times at its beginning."""
    for line in re.finditer(r"^.*\S.*$", text, re.MULTILINE):
        if not understood.match(line[0]):
            raise _not_understood(text, line.start())


def _frame_rate(first: re.Match[str]) -> float | None:
    """Frames per second, which the text of frame 1 names; None if the line is a cue."""
    try:
        rate = float(first[3])
    except ValueError:
        return None
    return rate if first[1] == first[2] == "1" and 0 < rate < math.inf else None


def _parse_lrc(text: str, format: str) -> SubtitleFile:
    """Lyrics: lines that begin with one time or several; a cue lasts until the next one begins."""
    lines = list(_LRC_LINE.finditer(text))
    _check_lines(text, re.compile(f"{_LRC_LINE.pattern}|{_LRC_OTHER.pattern}", re.MULTILINE))
    texts = [(line.start(line.lastindex or 0), line.end()) for line in lines]
    starts = [_seconds(line[1], line[2], line[3], line[4], line[5]) for line in lines]
    return _without_ends(text, "lrc", starts, texts)


def _without_ends(
    text: str, format: str, starts: Sequence[float], spans: Sequence[tuple[int, int]]
) -> SubtitleFile:
    """Return subtitles whose cues end when others begin. One without text only ends another.

    Args:
        text: The file.
        format: Its format.
        starts: When each cue begins, in seconds.
        spans: (start, end) of each cue's text in `text`.
    """
    ordered = sorted({*starts})
    following = dict(zip(ordered, ordered[1:], strict=False))
    shown = [
        (start, span)
        for start, span in zip(starts, spans, strict=True)
        if text[slice(*span)].replace("&nbsp;", " ").strip()
    ]
    cues = tuple(
        Cue(start, following.get(start, start + _LAST_CUE_S), text[begin:end])
        for start, (begin, end) in shown
    )
    edges = [0, *(edge for _, span in shown for edge in span), len(text)]
    between = tuple(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    return SubtitleFile(format, cues, between)


def _parse_sami(text: str, format: str) -> SubtitleFile:
    """SAMI: paragraphs at points of time, some of several languages, each a class of its own."""
    syncs = list(_SAMI_SYNC.finditer(text))
    begun = {sync.start() for sync in syncs}
    for tag in re.finditer(r"<sync\b", text, re.IGNORECASE):
        if tag.start() not in begun:
            raise _not_understood(text, tag.start())
    found: list[tuple[str, float, tuple[int, int]]] = []
    for sync in syncs:
        end = _SAMI_BLOCK_END.search(text, sync.end())
        block = text[sync.end() : len(text) if end is None else end.start()]
        for paragraph in list(_SAMI_PARAGRAPH.finditer(block)) or _ALL.finditer(block):
            body = paragraph[2].strip()
            begin = sync.end() + paragraph.start(2) + paragraph[2].find(body)
            span = (begin, begin + len(body))
            found.append(((paragraph[1] or "").lower(), int(sync[1]) / 1000, span))
    classes = dict.fromkeys(
        name for name, _, (begin, end) in found if re.search(r"[^\W\d_]", text[begin:end])
    )
    classes.pop("", None)
    if len(classes) > 1:
        first, *others = (name.upper() for name in classes)
        print_note(f"only the cues of {first} are used; those of {', '.join(others)} stay")
    chosen = {"", next(iter(classes), "")}
    used = [(start, span) for name, start, span in found if name in chosen]
    return _without_ends(text, "smi", [start for start, _ in used], [span for _, span in used])


def _parse_other(text: str, format: str) -> SubtitleFile:
    """Formats that pysubs2 reads: its texts have the markup of ass."""
    from pysubs2 import SSAFile

    if format == "mpl":
        _check_lines(text, _MPL_LINE)  # pysubs2 leaves out other lines
    subtitles = SSAFile.from_string(text)
    events = [event for event in subtitles.events if not event.is_comment]
    cues = tuple(Cue(event.start / 1000, event.end / 1000, event.text) for event in events)

    def write(texts: Sequence[str]) -> str:
        return _with_texts(subtitles, texts)

    return SubtitleFile(format, cues, write=write)


def _with_texts(subtitles: SSAFile, texts: Sequence[str]) -> str:
    """The file with other texts, in the format and at the frame rate that it was read in."""
    events: Iterator[str] = iter(texts)
    for event in subtitles.events:
        if not event.is_comment:
            event.text = next(events)
    return subtitles.to_string(subtitles.format or "srt", fps=subtitles.fps)


_PARSERS: dict[str, Callable[[str, str], SubtitleFile]] = {
    "srt": _parse_timed_blocks,
    "vtt": _parse_timed_blocks,
    "ass": _parse_ass,
    "ssa": _parse_ass,
    "sub": _parse_microdvd,
    "lrc": _parse_lrc,
    "smi": _parse_sami,
    "sami": _parse_sami,
}
SUBTITLE_SUFFIXES = (
    ".srt",
    ".vtt",
    ".ass",
    ".ssa",
    ".sub",
    ".ttml",
    ".dfxp",
    ".mpl",
    ".lrc",
    ".smi",
    ".sami",
)
