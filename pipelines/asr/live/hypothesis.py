"""Words and segments of a hypothesis: the token ids that a model generates for one window.

Pure functions over text and timestamp tokens, shared by the buffer and the commit policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.asr.plain_tokenizer import LiveTokenizer

__all__ = ["Word", "segment_starts", "shift_timestamps", "split_words"]

# Characters of scripts that are written without spaces, as ranges of code points: Thai and Lao,
# Tibetan, Myanmar, Khmer, Chinese and Japanese with their punctuation and full-width forms.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x0F00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x312F),
    (0x31A0, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFFEF),
    (0x20000, 0x3FFFF),
)


@dataclass(frozen=True)
class Word:
    """One word of a hypothesis.

    Attributes:
        tokens: its text tokens, punctuation included.
        stop: index in the hypothesis after its last token.
    """

    tokens: tuple[int, ...]
    stop: int


def split_words(tokens: Sequence[int], tokenizer: LiveTokenizer) -> list[Word]:
    """Split a hypothesis into words, in order.

    A word begins at a token that starts with a space. Text without spaces (Chinese, Japanese,
    Thai) is split wherever a character is complete. Timestamps and other special tokens separate
    words and belong to none.
    """
    result: list[Word] = []
    word: list[int] = []
    for index, token in enumerate([*tokens, None]):
        text = token if token is not None and tokenizer.is_text(token) else None
        piece = b"" if text is None else tokenizer.bytes_of([text])
        starts = piece.startswith(b" ") or _is_unspaced(tokenizer.bytes_of(word), piece)
        if word and (text is None or starts):
            result.append(Word(tuple(word), index))
            word = []
        if text is not None:
            word.append(text)
    return result


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
    return all(_is_of_unspaced_script(character) for character in (end, start))


def _is_of_unspaced_script(character: str) -> bool:
    """Whether a character, or the empty string, belongs to a script without spaces."""
    return bool(character) and any(low <= ord(character) <= high for low, high in _UNSPACED)
