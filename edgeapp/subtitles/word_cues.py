"""Subtitles laid out by words: line width, line count, words per line, the spoken word underlined.

Reference: SubtitlesWriter of openai-whisper, with the same option names and the same output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeapp.subtitles.shaping import TimedWord
from pipelines import OptionError
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import Segment, Word

__all__ = ["WordCueLayout"]

_PAUSE_S = 3.0  # a longer pause ends a subtitle that may span segments
_UNLIMITED = 1000


@dataclass(frozen=True)
class WordCueLayout:
    """Layout of the subtitles of segments with word timestamps.

    Attributes:
        max_line_width: Characters per line.
        max_line_count: Lines per subtitle; needs a width, and lets subtitles span segments.
        max_words_per_line: Words per line; excludes a width.
        highlight_words: One cue per word, in which that word is underlined.

    Raises:
        OptionError: A value is below 1, or the combination is invalid.
    """

    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None
    highlight_words: bool = False

    def __post_init__(self) -> None:
        for name in ("max_line_width", "max_line_count", "max_words_per_line"):
            value = getattr(self, name)
            if value is not None and value < 1:
                flag = name.replace("_", "-")
                raise OptionError(f"--{flag} must be 1 or more, not {value}")
        if self.max_line_count is not None and self.max_line_width is None:
            raise OptionError("--max-line-count needs --max-line-width")
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise OptionError("--max-words-per-line and --max-line-width exclude each other")

    @property
    def active(self) -> bool:
        """Whether the layout differs from one cue per segment."""
        return self != WordCueLayout()

    def cues(self, segments: Sequence[Segment]) -> list[Cue]:
        """The subtitles of segments; one cue per segment where no segment has words."""
        if not any(segment.words for segment in segments):
            return [Cue(segment.start, segment.end, segment.text) for segment in segments]
        return [cue for words in self._subtitles(segments) for cue in self._render(words)]

    def timed_cues(self, segments: Sequence[Segment]) -> list[tuple[Cue, Sequence[TimedWord]]]:
        """The subtitles of segments with words, each with its words, without highlights."""
        return [
            (
                Cue(words[0].start, words[-1].end, "".join(word.word for word in words)),
                [TimedWord(word.word, word.start, word.end) for word in words],
            )
            for words in self._subtitles(segments)
        ]

    def _subtitles(self, segments: Sequence[Segment]) -> Iterator[list[Word]]:
        """The words of each subtitle; white space and line breaks are part of the words."""
        keep_segments = self.max_line_count is None or self.max_line_width is None
        width = self.max_line_width or _UNLIMITED
        length, lines = 0, 1
        subtitle: list[Word] = []
        last_start = next((w.start for s in segments for w in s.words), 0.0)
        for starts_chunk, word in self._chunked(segments):
            pause = not keep_segments and word.start - last_start > _PAUSE_S
            chunk_break = starts_chunk and bool(subtitle) and keep_segments
            last_start = word.start
            if length > 0 and length + len(word.word) <= width and not pause and not chunk_break:
                length += len(word.word)
                subtitle.append(word)
                continue
            text = word.word.strip()
            full = self.max_line_count is not None and (pause or lines >= self.max_line_count)
            if (subtitle and full) or chunk_break:
                yield subtitle
                subtitle, lines = [], 1
            elif length > 0:
                lines += 1
                text = "\n" + text
            length = len(text.strip())
            subtitle.append(replace(word, word=text))
        if subtitle:
            yield subtitle

    def _chunked(self, segments: Iterable[Segment]) -> Iterator[tuple[bool, Word]]:
        """(whether a chunk of max_words_per_line words starts here, word) for all words."""
        count = self.max_words_per_line or _UNLIMITED
        for segment in segments:
            for index, word in enumerate(segment.words):
                yield index % count == 0, word

    def _render(self, words: list[Word]) -> Iterator[Cue]:
        """The cue of a subtitle, or with highlight_words a cue per word and per gap."""
        texts = [word.word.replace("-->", "->") for word in words]
        if not self.highlight_words:
            yield Cue(words[0].start, words[-1].end, "".join(texts))
            return
        shown_until = words[0].start
        for index, word in enumerate(words):
            if shown_until != word.start:
                yield Cue(shown_until, word.start, "".join(texts))
            underlined = [*texts]
            underlined[index] = re.sub(r"^(\s*)(.*)$", r"\1<u>\2</u>", texts[index])
            yield Cue(word.start, word.end, "".join(underlined))
            shown_until = word.end
