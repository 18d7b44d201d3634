"""Subtitles laid out by word: short lines, few words at a time, the spoken word underlined.

After openai-whisper's SubtitlesWriter, whose options have the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeapp.subtitles.formats import Cue
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import Segment, Word

__all__ = ["WordCueLayout"]

_PAUSE_S = 3.0  # ends a subtitle that may go on beyond its segment
_ENDLESS = 1000


@dataclass(frozen=True)
class WordCueLayout:
    """How words become subtitles; needs word times.

    max_line_width: characters. max_line_count: lines a subtitle; with a width, subtitles may then
    go on beyond segments. max_words_per_line: without a width only. highlight_words: a cue for
    each word, in which it is underlined.

    Raises OptionError for values that make no sense.
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
    def asked(self) -> bool:
        """Whether it differs from a cue for each segment."""
        return self != WordCueLayout()

    def cues(self, segments: Sequence[Segment]) -> list[Cue]:
        """The subtitles of segments with word times."""
        if not any(segment.words for segment in segments):
            return [Cue(segment.start, segment.end, segment.text) for segment in segments]
        return [cue for words in self._subtitles(segments) for cue in self._shown(words)]

    def _subtitles(self, segments: Sequence[Segment]) -> Iterator[list[Word]]:
        """The words of one subtitle after the other, with their white space."""
        keep = self.max_line_count is None or self.max_line_width is None
        width = self.max_line_width or _ENDLESS
        length, lines = 0, 1
        subtitle: list[Word] = []
        last = next((w.start for s in segments for w in s.words), 0.0)
        for begins, word in self._chunked(segments):
            pause = not keep and word.start - last > _PAUSE_S
            breaks = begins and bool(subtitle) and keep
            last = word.start
            if length > 0 and length + len(word.word) <= width and not pause and not breaks:
                length += len(word.word)
                subtitle.append(word)
                continue
            text = word.word.strip()
            full = self.max_line_count is not None and (pause or lines >= self.max_line_count)
            if (subtitle and full) or breaks:
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
        """All words, and whether a new chunk of a segment begins with them."""
        count = self.max_words_per_line or _ENDLESS
        for segment in segments:
            for index, word in enumerate(segment.words):
                yield index % count == 0, word

    def _shown(self, words: list[Word]) -> Iterator[Cue]:
        texts = [word.word.replace("-->", "->") for word in words]
        if not self.highlight_words:
            yield Cue(words[0].start, words[-1].end, "".join(texts))
            return
        last = words[0].start
        for index, word in enumerate(words):
            if last != word.start:
                yield Cue(last, word.start, "".join(texts))
            marked = [*texts]
            marked[index] = re.sub(r"^(\s*)(.*)$", r"\1<u>\2</u>", texts[index])
            yield Cue(word.start, word.end, "".join(marked))
            last = word.end
