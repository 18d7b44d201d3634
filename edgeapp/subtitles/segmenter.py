"""Text with times → cues that end where sentences end: for live captions, and to translate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import Segment, Word

__all__ = ["SentenceJoiner", "SubtitleSegmenter", "ends_sentence"]

_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING_MARKS = "\"'”’»)]"  # may follow the mark that ends a sentence

_MAX_CUE_CHARACTERS = 84  # two lines of 42, the common limit of subtitles
_MAX_CUE_S = 7.0

# A joined cue ends at this length or at this pause even without punctuation (music, lists).
_MAX_JOINED_S = 30.0
_MAX_PAUSE_S = 2.0


def ends_sentence(text: str) -> bool:
    """Whether the text ends a sentence. Closing marks and white space may follow."""
    return text.rstrip().rstrip(_CLOSING_MARKS).endswith(_SENTENCE_ENDS)


class SubtitleSegmenter:
    """Cuts committed text into readable cues: at most one sentence, 84 characters, 7 seconds."""

    def __init__(self) -> None:
        self._text = ""
        self._start = self._end = 0.0

    def add(self, text: str, start: float, end: float, timed: Sequence[Word] = ()) -> Iterator[Cue]:
        """Append text and yield the cues that are complete.

        Args:
            text: Continues the last word unless it begins with white space.
            start: When the text was spoken, in seconds; its words share the time evenly.
            end: The end of that time.
            timed: Its words with times of their own, if these are known.
        """
        words = text.split()
        if not words:
            return
        continues_word = bool(self._text) and not text[0].isspace()
        own = [word for word in timed if word.word.strip()]
        if [word.word.strip() for word in own] == words:
            spans = [(word.start, word.end) for word in own]
        else:
            count = len(words)
            times = [start + (end - start) * index / count for index in range(count + 1)]
            spans = list(pairwise(times))
        for index, (word, (word_start, word_end)) in enumerate(zip(words, spans, strict=True)):
            if self._text and (
                len(self._text) + 1 + len(word) > _MAX_CUE_CHARACTERS
                or word_end - self._start > _MAX_CUE_S
            ):
                yield from self.flush()
            if not self._text:
                self._text, self._start = word, word_start
            else:
                self._text += word if continues_word and index == 0 else f" {word}"
            self._end = word_end
            if ends_sentence(word):
                yield from self.flush()

    @property
    def open(self) -> str:
        """The text of the incomplete cue."""
        return self._text

    def flush(self) -> Iterator[Cue]:
        """Yield the incomplete cue, if there is one: at a pause, and at the end."""
        if self._text:
            yield Cue(self._start, self._end, self._text)
            self._text = ""


class SentenceJoiner:
    """Joins segments into cues of whole sentences, so that no sentence is translated in parts."""

    def __init__(self) -> None:
        self._open: list[Segment] = []

    def add(self, segment: Segment) -> Iterator[Cue]:
        """Append a segment and yield the cues that are complete."""
        if not segment.text.strip():
            return
        if self._open and segment.start - self._open[-1].end > _MAX_PAUSE_S:
            yield from self.flush()
        self._open.append(segment)
        too_long = segment.end - self._open[0].start > _MAX_JOINED_S
        if too_long or ends_sentence(segment.text):
            yield from self.flush()

    def flush(self) -> Iterator[Cue]:
        """Yield the incomplete cue, if there is one: at the end of the recording."""
        if self._open:
            text = "".join(segment.text for segment in self._open).strip()
            yield Cue(self._open[0].start, self._open[-1].end, text)
            self._open = []
