"""Word errors, and words that are recognized in pauses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgeapp.bench.word_lag import align, plain_words
from pipelines.asr import Word
from tests.benchmarks.live_latency.recordings import Spoken, silences

__all__ = ["Quality", "quality"]


@dataclass(frozen=True)
class Quality:
    """Edits of what was recognized. Sums of several are counts of all.

    Attributes:
        words: Number of true words.
        edits: Words to delete, insert or replace.
        insertions: Those of the edits that are words which were not said.
        in_silence: Those of the insertions that lie in a silence of more than 1 s.
    """

    words: int = 0
    edits: int = 0
    insertions: int = 0
    in_silence: int = 0

    def __add__(self, other: Quality) -> Quality:
        return Quality(
            self.words + other.words,
            self.edits + other.edits,
            self.insertions + other.insertions,
            self.in_silence + other.in_silence,
        )

    @property
    def error_rate(self) -> float:
        """Edits in a hundred words."""
        return 100 * self.edits / self.words


def quality(recording: Spoken, found: Iterable[Word]) -> Quality:
    """Compare recognized words with what was said, in lower case, without punctuation."""
    timed = [
        (plain, (word.start + word.end) / 2) for word in found for plain in plain_words(word.word)
    ]
    reference, hypothesis = plain_words(recording.text), [plain for plain, _ in timed]
    pairs = align(reference, hypothesis)
    inserted = [timed[j][1] for i, j in pairs if i is None and j is not None]
    return Quality(
        words=len(reference),
        edits=sum(i is None or j is None or reference[i] != hypothesis[j] for i, j in pairs),
        insertions=len(inserted),
        in_silence=_count_within(inserted, silences(recording)),
    )


def _count_within(times: Sequence[float], spans: Sequence[tuple[float, float]]) -> int:
    return sum(any(start < time < end for start, end in spans) for time in times)
