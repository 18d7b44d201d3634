"""LocalAgreement-2: commit the longest common prefix of two successive hypotheses.

Liu, Spanakis, Niehues 2020, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation
by Partial Hypothesis Selection". whisper_streaming (Macháček et al. 2023) uses the same policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.asr.live.hypothesis import Word

__all__ = ["agreed_word_count"]


def agreed_word_count(previous: Sequence[Word], current: Sequence[Word]) -> int:
    """Number of leading words that both hypotheses share, compared by their tokens."""
    count = 0
    for old, new in zip(previous, current, strict=False):
        if old.tokens != new.tokens:
            break
        count += 1
    return count
