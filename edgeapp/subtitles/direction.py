"""Marks of direction around lines of Hebrew, Arabic and other right-to-left scripts.

Players of srt and ass files lay a line out from left to right, so that a full stop at the end of a
right-to-left line is shown at its beginning. A mark beyond the full stop prevents that.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["SPACES", "edge_marks", "is_right_to_left", "with_marks", "without_edge_marks"]

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
