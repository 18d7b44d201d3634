"""Words with times → subtitles that read well: the one step for everything that writes cues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeapp.subtitles.line_breaks import (
    break_cost,
    display_width,
    fits,
    has_good_break,
    lay_out,
    words_to_break,
)
from edgeapp.subtitles.speakers import by_speaker
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines.subtitles import Cue, Timed, Transcript

if TYPE_CHECKING:
    from pipelines import Segment

__all__ = [
    "TimedWord",
    "narrowed",
    "shape",
    "shape_with_words",
    "shape_words",
    "shaped",
    "timed_words",
]

_LONG_PAUSE_S = 2.0  # a cue never spans a longer pause
_PAUSE_S = 0.4  # a pause that a reader takes for the end of a phrase
_LINGER_S = 0.5  # a cue stays a little after its last word, where nothing follows at once

# Costs, in units of `break_cost`.
_CUE = 2.0  # of each cue: fewer cues are calmer
_OVER_SPEED = 1.0  # of each character per second too many
_TOO_SHORT = 8.0  # of each second that a cue is too short
_VIOLATION = 100.0  # of each rule that a cue breaks: as few as the speech allows
_TOLERANCE_S = 0.001  # files have milliseconds
_BREAK_WEIGHT = 1.5  # the end of a cue interrupts more than the end of a line
_TWO_SENTENCES = 2.5  # of a sentence that ends inside a cue, where both parts could be cues
_SHORT_SENTENCE = 15  # characters; shorter ones share a cue: "Yes. I know."


@dataclass(frozen=True)
class TimedWord:
    """A word, with the space before it, and when it is spoken (seconds)."""

    text: str
    start: float
    end: float


def timed_words(parts: Iterable[Timed | Segment]) -> list[TimedWord]:
    """The words of segments or cues.

    Where a segment has no times of words, its words share its time by their length.
    """
    words: list[TimedWord] = []
    for part in parts:
        if spoken := getattr(part, "words", ()):
            for word in spoken:
                words += _spread(word.word, word.start, word.end)
        else:
            text = part.text if part.text[:1].isspace() else f" {part.text}"
            words += _spread(text, part.start, part.end)
    return words


def _spread(text: str, start: float, end: float) -> list[TimedWord]:
    """Words that share a time by their width."""
    words = words_to_break(text.replace("\n", " "))
    total = sum(display_width(word) for word in words)
    spread: list[TimedWord] = []
    position = 0
    for word in words:
        begin = start + (end - start) * position / total
        position += display_width(word)
        spread.append(TimedWord(word, begin, start + (end - start) * position / total))
    return spread


def shape(parts: Iterable[Timed | Segment], style: SubtitleStyle = DEFAULT_STYLE) -> list[Cue]:
    """The subtitles of segments or cues.

    Args:
        parts: In ascending order of time.
        style: Limits of a cue.

    Returns:
        Cues that do not overlap. Lines and longest time hold always (a longer word has a line
        of its own); reading speed, shortest time and gap as far as the speech allows: a cue never
        begins before its first word, nor ends after the next cue begins. Cues of several speakers
        overlap where their speech does.
    """
    speakers = by_speaker(parts)
    if list(speakers) in ([], [""]):
        return shape_words(timed_words(speakers.get("", ())), style)
    cues: list[Cue] = []
    for speaker, own in speakers.items():
        shaped_cues = shape_words(timed_words(own), narrowed(style, speaker))
        cues += [replace(cue, speaker=speaker) for cue in shaped_cues]
    return sorted(cues, key=lambda cue: cue.start)


def narrowed(style: SubtitleStyle, speaker: str) -> SubtitleStyle:
    """The style for the text of a speaker, whose name stands before the first line."""
    if not speaker:
        return style
    room = style.max_line_width - display_width(f"{speaker}: ")
    return replace(style, max_line_width=max(room, style.max_line_width // 2))


def shaped(transcript: Transcript, style: SubtitleStyle = DEFAULT_STYLE) -> Transcript:
    """A transcript whose segments and translation are subtitles in a style."""
    return replace(
        transcript,
        segments=tuple(shape(transcript.segments, style)),
        translation=tuple(shape(transcript.translation, style)),
    )


def shape_words(words: Sequence[TimedWord], style: SubtitleStyle = DEFAULT_STYLE) -> list[Cue]:
    """As `shape`, of words."""
    return [cue for cue, _ in shape_with_words(words, style)]


def shape_with_words(
    words: Sequence[TimedWord], style: SubtitleStyle = DEFAULT_STYLE
) -> list[tuple[Cue, Sequence[TimedWord]]]:
    """As `shape`, of words: each cue with its words."""
    words = _in_order(words)
    groups = _divide(words, style)
    cues = [
        Cue(
            group[0].start,
            max(group[-1].end, group[0].start),
            lay_out([word.text for word in group], style.max_line_width, style.max_lines),
        )
        for group in groups
    ]
    return list(zip(_timed(cues, style), groups, strict=True))


def _in_order(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Words whose times never run backwards: recognised times may overlap a little."""
    ordered: list[TimedWord] = []
    at = 0.0
    for word in words:
        start = max(at, word.start)
        ordered.append(replace(word, start=start, end=max(start, word.end)))
        at = start
    return ordered


def _divide(words: Sequence[TimedWord], style: SubtitleStyle) -> list[Sequence[TimedWord]]:
    """The words of each cue: the division of least cost, by dynamic programming."""
    texts = [word.text for word in words]
    # best[i]: (cost of the cues of words[:i], start of the last one)
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(words) + 1):
        next_start = words[end].start if end < len(words) else words[-1].end + style.max_duration_s
        at_end = 0.0
        if end < len(words):
            pause = words[end].start - words[end - 1].end
            at_end = _BREAK_WEIGHT * break_cost(texts[end - 1], texts[end])
            if pause >= _PAUSE_S:
                at_end = min(at_end, 0.5) - min(pause, _LONG_PAUSE_S)
        cheapest: tuple[float, int] | None = None
        sentences = _Sentences()
        characters = 0
        for start in range(end - 1, -1, -1):
            if start < end - 1:
                if not _may_be_cue(words[start:end], texts[start:end], style):
                    break
                if break_cost(texts[start], texts[start + 1]) == 0:
                    sentences.end()
            width = display_width(texts[start])
            characters += width
            sentences.prepend(width)
            shown = characters - display_width(texts[start]) + display_width(texts[start].lstrip())
            cue_time = _time_cost(words[start], words[end - 1], shown, next_start, style)
            cost = best[start][0] + _CUE + at_end + cue_time
            cost += _TWO_SENTENCES * sentences.separable
            if (
                style.max_lines == 2
                and characters > style.max_line_width  # most texts are short
                and not has_good_break(texts[start:end], style.max_line_width)
            ):
                cost += _VIOLATION
            if cheapest is None or cost < cheapest[0]:
                cheapest = (cost, start)
        assert cheapest is not None
        best.append(cheapest)
    groups: list[Sequence[TimedWord]] = []
    end = len(words)
    while end:
        start = best[end][1]
        groups.append(words[start:end])
        end = start
    return groups[::-1]


class _Sentences:
    """Counts the sentence ends inside a cue, word by word from its end, at which it could be cut.

    Attributes:
        separable: Sentence ends with _SHORT_SENTENCE characters or more on either side.
    """

    def __init__(self) -> None:
        self._counted = 0
        self._open = False  # a sentence end whose left side is not long enough yet
        self._width = 0

    def end(self) -> None:
        """A sentence ends before the words so far."""
        self._counted = self.separable
        self._open, self._width = self._width >= _SHORT_SENTENCE, 0

    def prepend(self, width: int) -> None:
        """Add a word of this width before the words so far."""
        self._width += width

    @property
    def separable(self) -> int:
        return self._counted + (self._open and self._width >= _SHORT_SENTENCE)


def _may_be_cue(words: Sequence[TimedWord], texts: Sequence[str], style: SubtitleStyle) -> bool:
    """Whether words may share a cue: room, time, and no long pause after the first word."""
    return (
        words[1].start - words[0].end <= _LONG_PAUSE_S
        and words[-1].end - words[0].start <= style.max_duration_s
        and fits(texts, style.max_line_width, style.max_lines)
    )


def _time_cost(
    first: TimedWord, final: TimedWord, characters: int, next_start: float, style: SubtitleStyle
) -> float:
    """Cost of a cue of some words that is shown too shortly to be read."""
    start, last = first.start, final.end
    longest = min(next_start - style.min_gap_s, start + style.max_duration_s)
    shown = max(last, min(longest, max(last, start + style.min_duration_s))) - start
    readable = max(shown, min(longest - start, characters / style.max_characters_per_s), 0.05)
    over = max(0.0, characters / readable - style.max_characters_per_s)
    possible = longest - start + _TOLERANCE_S
    broken = (characters > style.max_characters_per_s * possible) + (
        possible < style.min_duration_s
    )
    return (
        _OVER_SPEED * over
        + _TOO_SHORT * max(0.0, style.min_duration_s - readable)
        + _VIOLATION * broken
    )


def _timed(cues: Sequence[Cue], style: SubtitleStyle) -> list[Cue]:
    """Cues that stay until they can be read, as far as the next one allows."""
    timed: list[Cue] = []
    for index, cue in enumerate(cues):
        characters = display_width(cue.text)
        wanted = max(
            cue.end,
            cue.start + style.min_duration_s,
            cue.start + characters / style.max_characters_per_s,
        )
        latest = cue.start + style.max_duration_s
        if index + 1 < len(cues):
            following = cues[index + 1].start - style.min_gap_s
            # A short gap flickers: the cue stays until the next one.
            if wanted < following < wanted + _LINGER_S:
                wanted = following
            latest = min(latest, following)
        else:
            wanted += _LINGER_S
        timed.append(replace(cue, end=max(cue.start, min(wanted, latest))))
    return timed
