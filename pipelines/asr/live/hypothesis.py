"""Words and segments of a hypothesis: the token ids that a model generates for one window.

Pure functions over text and timestamp tokens, and the two policies that commit words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from pipelines.asr.plain_tokenizer import LiveTokenizer
from pipelines.text import UNSPACED

_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True)
class HypothesisWord:
    """One word of a hypothesis.

    Attributes:
        tokens: Its text tokens, punctuation included.
        stop: Index in the hypothesis after its last token.
    """

    tokens: tuple[int, ...]
    stop: int


def hypothesis_words(tokens: Sequence[int], tokenizer: LiveTokenizer) -> list[HypothesisWord]:
    """Split a hypothesis into words, in order.

    A word begins at a token that starts with a space. Text without spaces (Chinese, Japanese,
    Thai) is split wherever a character is complete. Timestamps and other special tokens separate
    words and belong to none.
    """
    result: list[HypothesisWord] = []
    word: list[int] = []
    for index, token in enumerate([*tokens, None]):
        text = token if token is not None and tokenizer.is_text(token) else None
        piece = b"" if text is None else tokenizer.bytes_of([text])
        starts = piece.startswith(b" ") or _is_unspaced(tokenizer.bytes_of(word), piece)
        if word and (text is None or starts):
            result.append(HypothesisWord(tuple(word), index))
            word = []
        if text is not None:
            word.append(text)
    return result


def agreed_word_count(previous: Sequence[HypothesisWord], current: Sequence[HypothesisWord]) -> int:
    """Return the number of leading words on which two successive hypotheses agree.

    This is LocalAgreement-2 (Liu et al. 2020; whisper_streaming).
    """
    pairs = zip(previous, current, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].tokens == pair[1].tokens, pairs))


def aligned_word_count(
    words: Sequence[HypothesisWord], token_times: Sequence[float], limit_s: float
) -> int:
    """Return the number of leading words that are aligned before `limit_s`.

    AlignAtt (Papi, Turchi, Negri 2023): the alignment heads give a time for each token; a word that
    attends to the last frames may still change when more audio arrives. A word counts if its
    tokens, and all tokens of the hypothesis before it, lie before the limit.

    Args:
        words: The words of the hypothesis.
        token_times: The aligned time of each token of the hypothesis (s).
        limit_s: End of the audio less the safety margin (s), on the same clock.
    """
    before = [all(t < limit_s for t in token_times[: word.stop]) for word in words]
    return before.index(False) if False in before else len(before)


def segment_starts(tokens: Sequence[int], timestamp_begin: int) -> list[int]:
    """Indices at which a new segment starts: between two consecutive timestamp tokens."""
    return [
        i
        for i in range(1, len(tokens))
        if tokens[i - 1] >= timestamp_begin and tokens[i] >= timestamp_begin
    ]


def shift_timestamps(tokens: Sequence[int], steps: int, timestamp_begin: int) -> list[int]:
    """The same hypothesis for a window that begins `steps` timestamps (0.02 s each) later."""
    return [
        max(token - steps, timestamp_begin) if token >= timestamp_begin else token
        for token in tokens
    ]


def _is_unspaced(before: bytes, piece: bytes) -> bool:
    """Whether `before` ends and `piece` begins with a complete character of an unspaced script."""
    try:
        end, start = before.decode()[-1:], piece.decode()[:1]
    except UnicodeDecodeError:
        return False
    return bool(_UNSPACED_CHARACTER.match(end) and _UNSPACED_CHARACTER.match(start))
