"""LocalAgreement-2: commit the words on which two successive hypotheses agree."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.asr.live.hypothesis import Word

__all__ = ["agreed_word_count"]


def agreed_word_count(before: Sequence[Word], now: Sequence[Word]) -> int:
    """How many words at the start both hypotheses share (LocalAgreement-2, Liu et al. 2020)."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one.tokens != other.tokens:
            break
        count += 1
    return count
