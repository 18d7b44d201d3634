"""A transcript and its translation, passage by passage; and subtitles in both languages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import pairwise

from edgeapp.subtitles.line_breaks import (
    break_cost,
    display_width,
    fits,
    lay_out,
    words_to_break,
)
from edgeapp.subtitles.shaping import TimedWord, narrowed, timed_words
from edgeapp.subtitles.speakers import by_speaker, speaker_of
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines.subtitles import Cue, Timed, Transcript

__all__ = ["Passage", "bilingual", "passages"]

_NEAR_S = 0.01  # times are rounded
_SHIFTED = 8  # words by which a cut may be away from its share
_OFF_BALANCE = 0.5  # cost of each column by which a part is longer or shorter than its share


@dataclass(frozen=True)
class Passage:
    """A sentence, or some, with its translation.

    Attributes:
        start: Seconds.
        end: Seconds.
        parts: The segments of the text; none if there is only a translation.
        translation: "" without one.
        speaker: Who says it; "" if that is not known.
    """

    start: float
    end: float
    parts: tuple[Timed, ...]
    translation: str
    speaker: str = ""

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "".join(
            part.text if part.text[:1].isspace() else f" {part.text}" for part in self.parts
        ).strip()


def passages(transcript: Transcript) -> Iterator[Passage]:
    """The passages of a transcript: the sentences of its translation with the segments that begin
    in their time and have the same speaker, and single segments without a translation."""
    segments = by_speaker(segment for segment in transcript.segments if segment.text.strip())
    translation = by_speaker(transcript.translation)
    own = (
        _of_speaker(speaker, segments.get(speaker, []), translation.get(speaker, []))
        for speaker in dict.fromkeys((*segments, *translation))
    )
    return merge(*own, key=lambda passage: passage.start)


def _of_speaker(
    speaker: str, segments: Sequence[Timed], translation: Sequence[Cue]
) -> Iterator[Passage]:
    at = 0
    for cue in translation:
        while at < len(segments) and segments[at].start < cue.start - _NEAR_S:
            yield _single(segments[at])
            at += 1
        first = at
        while at < len(segments) and segments[at].start < cue.end - _NEAR_S:
            at += 1
        own = tuple(segments[first:at])
        end = max((cue.end, *(part.end for part in own)))
        yield Passage(cue.start, end, own, cue.text.strip(), speaker)
    yield from map(_single, segments[at:])


def _single(segment: Timed) -> Passage:
    return Passage(segment.start, segment.end, (segment,), "", speaker_of(segment))


def bilingual(transcript: Transcript, style: SubtitleStyle = DEFAULT_STYLE) -> list[Cue]:
    """Subtitles with the text above and its translation below it.

    A sentence that is too long is divided in both languages, in the same proportion.

    Args:
        transcript: With a translation.
        style: The lines and their width hold for each language by itself.
    """
    cues = [cue for passage in passages(transcript) for cue in _cues(passage, style)]
    shown = []
    for own in by_speaker(cues).values():  # speakers overlap where their speech does
        for cue, following in pairwise([*own, None]):
            assert cue is not None
            latest = cue.start + style.max_duration_s if following is None else following.start
            end = min(max(cue.end, cue.start + style.min_duration_s), max(latest, cue.start))
            shown.append(replace(cue, end=end))
    return sorted(shown, key=lambda cue: cue.start)


def _cues(passage: Passage, style: SubtitleStyle) -> list[Cue]:
    style = narrowed(style, passage.speaker)
    spoken = timed_words(passage.parts) or [TimedWord("", passage.start, passage.end)]
    words = [word.text for word in spoken]
    translated = words_to_break(passage.translation.replace("\n", " "))
    room = style.max_characters
    widths = (sum(map(display_width, each)) for each in (words, translated))
    # Fewer parts cannot be enough.
    count = max(1, *(width // room for width in widths))
    count = min(
        max(count, int((spoken[-1].end - spoken[0].start) / style.max_duration_s)), len(words)
    )
    while True:
        texts, meant = _divide(words, count), _divide(translated, count)
        fitting = all(fits(part, style.max_line_width, style.max_lines) for part in texts + meant)
        times = _times(spoken, texts)
        short = all(end - start <= style.max_duration_s for start, end in times)
        if (fitting and short) or count >= len(words):
            break
        count = min(count + 1 + count // 10, len(words))
    cues = []
    for part, other, (start, end) in zip(texts, meant, times, strict=True):
        both = (
            lay_out(each, style.max_line_width, style.max_lines) for each in (part, other) if each
        )
        cues.append(Cue(start, end, "\n".join(filter(None, both)), speaker=passage.speaker))
    return cues


def _times(
    spoken: Sequence[TimedWord], parts: Sequence[Sequence[str]]
) -> list[tuple[float, float]]:
    times, at = [], 0
    for part in parts:
        first, last = spoken[min(at, len(spoken) - 1)], spoken[min(at + len(part), len(spoken)) - 1]
        times.append((first.start, max(first.start, last.end)))
        at += len(part)
    return times


def _divide(words: Sequence[str], count: int) -> list[Sequence[str]]:
    """Words in `count` parts of about the same width, cut where a line may break well."""
    total = sum(map(display_width, words))
    parts, start, width = [], 0, 0
    ends = [0]
    for word in words:
        width += display_width(word)
        ends.append(width)
    for number in range(1, count):
        wanted = total * number / count
        # At least one word for each part that follows.
        last = max(start, len(words) - (count - number))
        nearest = min(max(bisect_left(ends, wanted), start + 1), last)
        cut = min(
            range(max(start, nearest - _SHIFTED), min(nearest + _SHIFTED, last) + 1),
            key=lambda i: _OFF_BALANCE * abs(ends[i] - wanted) + _break_cost(words, i),
        )
        parts.append(words[start:cut])
        start = cut
    return [*parts, words[start:]]


def _break_cost(words: Sequence[str], at: int) -> float:
    return break_cost(words[at - 1], words[at]) if 0 < at < len(words) else 0.0
