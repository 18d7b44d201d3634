"""AlignAtt: commit the words that the decoder located before a point in time."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.asr.live.hypothesis import Word

__all__ = ["words_before"]


def words_before(seconds: float, found: Sequence[Word], times: Sequence[float]) -> int:
    """How many words of the hypothesis, from its start, are heard before that time."""
    safe = [all(t < seconds for t in times[: word.stop]) for word in found]
    return safe.index(False) if False in safe else len(safe)
