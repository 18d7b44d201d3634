"""The markup of subtitles: what is said, apart from tags, dashes of speakers, and sounds."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from edgeapp.documents.references import unescaped
from edgeapp.subtitles.line_breaks import display_width, lay_out, words_to_break
from pipelines.subtitles import (
    SPACES,
    edge_marks,
    is_right_to_left,
    with_marks,
    without_edge_marks,
)

__all__ = ["Tag", "Utterance", "line_break", "plain_text", "render_cue", "utterances"]

_DASH = re.compile(r"[-–—‐](?![-–—‐])\s*(?=\S)")
# A speaker's name, or a sound at the beginning of what is said: "MARY: ", "[sighs] ".
_LABEL = re.compile(r"(?:[A-ZÀ-Þ][A-ZÀ-Þ0-9 .'-]{1,30}:|\[[^\]]{1,40}\]:?|\([^)]{1,40}\)) +(?=\S)")
_SOUND_BRACKETS = {"[": "]", "(": ")", "（": "）", "【": "】"}
_SONG = re.compile(r".*[♪♫♬].*|#\s.*|#.*#", re.DOTALL)

# Angle tags of srt and vtt, voices and times among them; override blocks of ass, also in srt.
_ANGLE_TAG = r"</?[a-zA-Z][^<>\n]*>|<\d[\d:.]*>|</?>"
_BLOCK = r"\{[^{}\n]*\}"
_ASS_CLOSING = re.compile(r"\{(?:\\(?:[ibus]0|r\w*))+\}")
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")
_WITH_ENTITIES = ("vtt", "smi")  # formats that write & as &amp;
_HTML_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TIME_TAG = re.compile(r"<\d|\{(?:\\[kK][fot]?\d+)+\}")  # of words, or syllables of karaoke


@dataclass(frozen=True)
class Tag:
    """A tag inside a text.

    Attributes:
        position: Characters of the text before it.
        text: The tag.
        closes: It belongs to the word before it, as `</i>` does, not to the one after it.
    """

    position: int
    text: str
    closes: bool


@dataclass(frozen=True)
class Utterance:
    """What one speaker says within a cue.

    Attributes:
        raw: The lines as they stand in the file.
        text: The words, in one line, without markup; empty if nothing is to be translated: a
            sound, music, a drawing, or no letter at all.
        lead: What stands before the text: tags, a speaker's dash or name.
        tail: Tags after the text.
        tags: Tags inside the text, in ascending order.
        marks: Marks of direction around a line of right-to-left text, before and after it.
    """

    raw: str
    text: str = ""
    lead: str = ""
    tail: str = ""
    tags: tuple[Tag, ...] = ()
    marks: tuple[str, str] = ("", "")

    @property
    def labelled(self) -> bool:
        """Whether a dash or a name says that another speaker begins."""
        return any(character.isalnum() or character in "-–—‐" for character in _bare(self.lead))


def utterances(raw: str, format: str) -> list[Utterance]:
    """The utterances of a cue: one, or one for each line that begins with a speaker's dash.

    Args:
        raw: The text of the cue as it stands in the file.
        format: srt, vtt, ass …: decides which markup and which line breaks there are.
    """
    lines = _lines(raw, format)
    begins = [i for i, line in enumerate(lines) if _DASH.match(_shown(line, format))]
    edges = sorted({0, *begins, len(lines)})
    return [
        _utterance(lines[start:end], format) for start, end in zip(edges, edges[1:], strict=False)
    ]


def plain_text(raw: str, format: str) -> str:
    """The text of a cue without tags and marks of direction, with its lines."""
    return "\n".join(_shown(line, format) for line in _lines(raw, format)).strip()


def render_cue(
    parts: Sequence[tuple[Utterance, str, Sequence[Tag]]], format: str, width: int, lines: int
) -> str:
    """The text of a cue in the markup of its format.

    Args:
        parts: Each utterance, its new text, and the tags inside that; an utterance without a text
            stays as it is.
        format: srt, vtt, ass …
        width: Characters per line.
        lines: Lines of an utterance, if it fits.
    """
    separator = line_break(format)
    rendered = []
    for utterance, text, tags in parts:
        if not utterance.text:
            rendered.append(utterance.raw)
            continue
        room = max(10, width - display_width(_bare(utterance.lead)))
        shown = text.replace("-->", "->")
        if format != "lrc":  # where a line break ends the cue
            shown = lay_out(words_to_break(shown), room, lines)
        tagged = "".join(_with_tags(shown, text, tags, format))
        marked = with_marks(f"{utterance.lead}{tagged}{utterance.tail}", format, utterance.marks)
        rendered.append(marked.replace("\n", separator))
    return separator.join(rendered)


def line_break(format: str) -> str:
    """What separates the lines of a cue."""
    return {"srt": "\n", "vtt": "\n", "lrc": "\n", "sub": "|", "smi": "<br>"}.get(format, "\\N")


def _lines(raw: str, format: str) -> list[str]:
    separator = line_break(format)
    if format == "smi":  # where a line feed is a space
        return [" ".join(line.split("\n")) for line in _HTML_BREAK.split(raw)]
    return re.split(r"\\N|\\n|\n", raw) if separator == "\\N" else raw.split(separator)


def _bare(line: str) -> str:
    return re.sub(f"{_ANGLE_TAG}|{_BLOCK}", "", line)


def _shown(line: str, format: str) -> str:
    return without_edge_marks(_unescaped(_bare(line), format))


def _escaped(character: str, format: str) -> str:
    return html.escape(character, quote=False) if format in _WITH_ENTITIES else character


def _unescaped(text: str, format: str) -> str:
    return unescaped(text) if format in _WITH_ENTITIES else text.replace("\\h", " ")


def _utterance(lines: list[str], format: str) -> Utterance:
    raw = line_break(format).join(lines)
    text, tags, marks = "", list[Tag](), ("", "")
    for line in lines:
        begins = True
        before, after = edge_marks(_unescaped(_bare(line), format))
        marks = (marks[0] or before, marks[1] or after)
        for piece, tag in _pieces(line):
            piece = _unescaped(piece, format)
            if begins or not text or text[-1].isspace():
                piece = piece.lstrip(SPACES + before if begins else None)
            if piece and begins:
                text += _between_lines(text, piece)
                begins = False
            text += piece
            if tag and not _TIME_TAG.match(tag):  # the times of words hold for the source only
                closes = tag.startswith("</") or bool(_ASS_CLOSING.fullmatch(tag))
                tags.append(Tag(len(text), tag, closes))
        text = text.rstrip(SPACES + after)
        for index in range(len(tags) - 1, -1, -1):
            if tags[index].position <= len(text):
                break
            tags[index] = replace(tags[index], position=len(text))
    said = bool(re.search(r"[^\W\d_]", text))
    if not said or _is_sound(text) or _SONG.fullmatch(text) or _DRAWING.search(raw):
        return Utterance(raw)
    divided = _divided(raw, text, tags)
    return replace(divided, marks=marks) if is_right_to_left(text) else divided


def _is_sound(text: str) -> bool:
    """Whether all words of a text are in one pair of brackets."""
    words = [i for i, character in enumerate(text) if character.isalnum() or character == "_"]
    for opening, closing in _SOUND_BRACKETS.items():
        start = text.rfind(opening, 0, words[0])
        if start >= 0 and text.find(closing, start) > words[-1]:
            return True
    return False


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """(text, tag after it) of a line; the last tag is empty."""
    at = 0
    for tag in re.finditer(f"{_ANGLE_TAG}|{_BLOCK}", line):
        yield line[at : tag.start()], tag[0]
        at = tag.end()
    yield line[at:], ""


def _between_lines(text: str, piece: str) -> str:
    """A space between two lines, except between characters of a script without spaces."""
    if not text:
        return ""
    wide = display_width(text[-1]) == 2 and display_width(piece[0]) == 2
    return "" if wide else " "


def _divided(raw: str, text: str, tags: list[Tag]) -> Utterance:
    """Separate what stands before and after the words: their order among each other stays."""
    start = 0
    for pattern in (_DASH, _LABEL):
        if found := pattern.match(text, start):
            start = found.end()
    inside = _inside_pairs(tags, start, len(text))
    lead, tail, at = [], [], 0
    inner: list[Tag] = []
    for index, tag in enumerate(tags):
        if index in inside or start < tag.position < len(text):
            inner.append(Tag(max(0, tag.position - start), tag.text, tag.closes))
        elif tag.position <= start:
            lead += [text[at : tag.position], tag.text]
            at = tag.position
        else:
            tail.append(tag.text)
    lead.append(text[at:start])
    return Utterance(raw, text[start:], "".join(lead), "".join(tail), tuple(inner))


def _inside_pairs(tags: list[Tag], start: int, end: int) -> set[int]:
    """Indices of tags at the edge of the text whose partner stands inside it: they enclose a part
    only."""
    inside: set[int] = set()
    open_tags: list[tuple[int, Tag]] = []
    for index, tag in enumerate(tags):
        if not tag.text.startswith("<"):
            continue
        if not tag.closes:
            open_tags.append((index, tag))
        elif open_tags:
            opened, opening = open_tags.pop()
            if not (opening.position <= start and tag.position >= end):
                inside |= {opened, index}
    return inside


def _with_tags(shown: str, text: str, tags: Sequence[Tag], format: str) -> Iterator[str]:
    """A laid-out text with tags: positions are counted in characters other than white space."""
    openings: dict[int, str] = {}
    closings: dict[int, str] = {}
    counts = [0, *accumulate(not character.isspace() for character in text)]
    for tag in tags:
        count = counts[min(tag.position, len(text))]
        target = closings if tag.closes else openings
        target[count] = target.get(count, "") + tag.text
    count = 0
    yield closings.get(0, "")
    for character in shown:
        if character.isspace():
            yield character
            continue
        yield openings.pop(count, "")
        yield _escaped(character, format)
        count += 1
        if count in closings:
            yield closings[count]
    yield openings.pop(count, "")
