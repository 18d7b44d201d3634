"""Segments → passages that end where a sentence ends: none is translated in halves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgeapp.subtitles.formats import Cue

if TYPE_CHECKING:
    from pipelines import Segment

__all__ = ["SentenceJoiner"]

# Closing marks may follow the full stop; … and the full-width marks end sentences too.
_ENDS = (".", "!", "?", "…", "。", "！", "？")
_CLOSERS = "\"'”’»)]"

# Where nothing ends (no punctuation, music), a passage is given after this much all the same.
_LONGEST_S = 30.0
_PAUSE_S = 2.0


class SentenceJoiner:
    """Collects segments; gives a passage as soon as its last sentence is complete."""

    def __init__(self) -> None:
        self._open: list[Segment] = []

    def add(self, segment: Segment) -> Iterator[Cue]:
        """Passages that are complete now that `segment` is known."""
        if not segment.text.strip():
            return
        if self._open and segment.start - self._open[-1].end > _PAUSE_S:
            yield from self.flush()
        self._open.append(segment)
        ended = segment.text.strip().rstrip(_CLOSERS).endswith(_ENDS)
        if ended or segment.end - self._open[0].start > _LONGEST_S:
            yield from self.flush()

    def flush(self) -> Iterator[Cue]:
        """What is left, at the end of the recording."""
        if self._open:
            text = "".join(segment.text for segment in self._open).strip()
            yield Cue(self._open[0].start, self._open[-1].end, text)
            self._open = []
