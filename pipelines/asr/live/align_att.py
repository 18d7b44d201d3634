"""AlignAtt: commit the words that cross-attention aligns safely before the end of the audio.

Papi, Turchi, Negri 2023, "AlignAtt: Using Attention-based Audio-Translation Alignments as a Guide
for Simultaneous Speech Translation". The decoder's alignment heads give a time for each token; a
word that attends to the last frames may still change when more audio arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.asr.live.hypothesis import Word

__all__ = ["aligned_word_count"]


def aligned_word_count(words: Sequence[Word], token_times: Sequence[float], limit_s: float) -> int:
    """Number of leading words that are aligned before `limit_s`.

    A word counts if its tokens, and all tokens of the hypothesis before it, lie before the limit.

    Args:
        words: the words of the hypothesis.
        token_times: the aligned time of each token of the hypothesis (s).
        limit_s: end of the audio less the safety margin (s), on the same clock.
    """
    before = [all(t < limit_s for t in token_times[: word.stop]) for word in words]
    return before.index(False) if False in before else len(before)
