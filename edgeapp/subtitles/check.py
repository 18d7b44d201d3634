"""Violations of a subtitle style: for `edgeapp subtitles check`, and for our own tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgeapp.subtitles.line_breaks import NEVER, break_cost, display_width, words_to_break
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines.subtitles import Timed

__all__ = ["RULES", "Violation", "violations"]

RULES = {
    "empty": "a cue has text",
    "lines": "a cue has no more lines than the style allows",
    "width": "a line is no longer than the style allows",
    "speed": "a cue is shown long enough to be read",
    "short": "a cue is shown for the shortest time at least",
    "long": "a cue is shown for the longest time at most",
    "gap": "two cues are apart by the gap of the style",
    "overlap": "a cue ends before the next one begins",
    "order": "a cue begins after the one before it, and ends after it begins",
    "break": "no line breaks between an article and its noun, or in a name",
}
_TOLERANCE_S = 0.0015  # files have milliseconds
_HUNDREDTHS = frozenset({"ass", "ssa"})  # formats of hundredths of a second


@dataclass(frozen=True)
class Violation:
    """A rule that a cue breaks.

    Attributes:
        cue: Number of the cue, from 1.
        start: When it begins, in seconds.
        rule: A key of RULES.
        message: What is wrong, with the figures.
    """

    cue: int
    start: float
    rule: str
    message: str


def violations(
    cues: Sequence[Timed], style: SubtitleStyle = DEFAULT_STYLE, form: str = "srt"
) -> Iterator[Violation]:
    """All violations of a style, in the order of the cues.

    Args:
        cues: Cues with plain text, without tags.
        style: The limits.
        form: Format of the file, which says how exact its times are.
    """
    tolerance_s = _TOLERANCE_S + 0.01 * (form in _HUNDREDTHS)
    for index, cue in enumerate(cues):
        following = cues[index + 1] if index + 1 < len(cues) else None
        for rule, message in _of_cue(cue, following, style, tolerance_s):
            yield Violation(index + 1, cue.start, rule, message)


def _of_cue(
    cue: Timed, following: Timed | None, style: SubtitleStyle, tolerance_s: float
) -> Iterator[tuple[str, str]]:
    lines = [line.strip() for line in cue.text.strip().split("\n")]
    if not any(lines):
        yield "empty", "the cue has no text"
        return
    if len(lines) > style.max_lines:
        yield "lines", f"{len(lines)} lines, allowed are {style.max_lines}"
    for line in lines:
        if (width := display_width(line)) > style.max_line_width:
            yield "width", f"{width} characters, allowed are {style.max_line_width}: {line}"
    for upper, lower in zip(lines, lines[1:], strict=False):
        left, right = words_to_break(upper), words_to_break(lower)
        if left and right and break_cost(left[-1], right[0]) >= NEVER:
            yield "break", f"the line breaks between {left[-1].strip()!r} and {right[0].strip()!r}"
    characters = sum(map(display_width, lines)) + len(lines) - 1
    yield from _of_times(cue, following, characters, style, tolerance_s)


def _of_times(
    cue: Timed,
    following: Timed | None,
    characters: int,
    style: SubtitleStyle,
    tolerance_s: float,
) -> Iterator[tuple[str, str]]:
    duration = cue.end - cue.start
    if duration <= 0:
        yield "order", "the cue ends before it begins"
        return
    if duration > style.max_duration_s + tolerance_s:
        yield "long", f"shown for {duration:.2f} s, allowed are {style.max_duration_s:.2f} s"
    if duration < style.min_duration_s - tolerance_s:
        yield "short", f"shown for {duration:.2f} s, at least {style.min_duration_s:.2f} s are due"
    if characters / (duration + tolerance_s) > style.max_characters_per_s:
        speed, allowed = characters / duration, style.max_characters_per_s
        yield "speed", f"{speed:.1f} characters per second, allowed are {allowed:g}"
    if following is None:
        return
    gap = following.start - cue.end
    if following.start < cue.start - tolerance_s:
        yield "order", "the next cue begins before this one"
    elif gap < -tolerance_s:
        yield "overlap", f"the next cue begins {-gap:.2f} s before this one ends"
    elif gap < style.min_gap_s - tolerance_s:
        yield "gap", f"{gap:.3f} s to the next cue, at least {style.min_gap_s:.3f} s are due"
