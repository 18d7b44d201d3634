"""Committed text → subtitle cues: a sentence each, and none that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from edgeapp.subtitles.formats import Cue

__all__ = ["SubtitleSegmenter"]

_ENDS = (".", "!", "?", "…", "。", "！", "？")
_CLOSERS = "\"'”’»)]"
_LONGEST = 84  # characters: two lines of 42, the common limit
_LONGEST_S = 7.0


class SubtitleSegmenter:
    """Collects text as it is committed; gives a cue as soon as it is complete."""

    def __init__(self) -> None:
        self._text = ""
        self._start = self._end = 0.0

    def add(self, text: str, start: float, end: float) -> Iterator[Cue]:
        """More text, spoken from start to end (seconds); its words share that time evenly."""
        words = text.split()
        if not words:
            return
        glued = bool(self._text) and not text[0].isspace()
        for index, word in enumerate(words):
            at = start + (end - start) * index / len(words)
            until = start + (end - start) * (index + 1) / len(words)
            if self._text and (
                len(self._text) + 1 + len(word) > _LONGEST or until - self._start > _LONGEST_S
            ):
                yield from self.flush()
            if not self._text:
                self._text, self._start = word, at
            else:
                self._text += word if glued and index == 0 else f" {word}"
            self._end = until
            if word.rstrip(_CLOSERS).endswith(_ENDS):
                yield from self.flush()

    @property
    def open(self) -> str:
        """Text that makes no complete cue yet."""
        return self._text

    def flush(self) -> Iterator[Cue]:
        """What is open: at a pause, and at the end."""
        if self._text:
            yield Cue(self._start, self._end, self._text)
            self._text = ""
