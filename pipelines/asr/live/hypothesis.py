"""What is sure in a hypothesis that grows with the audio: words, agreement, where to cut.

Pure functions over token ids: timestamps and text as Whisper generates them for one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.asr.tokenizer import WhisperTokenizer

__all__ = ["Word", "complete_segments", "shift_tokens", "words"]


@dataclass(frozen=True)
class Word:
    """text tokens that belong together, punctuation included. stop: index after its last token."""

    tokens: tuple[int, ...]
    stop: int


def words(tokens: Sequence[int], tokenizer: WhisperTokenizer) -> list[Word]:
    """The words of a hypothesis, in order; timestamps part them but belong to none.

    A word begins with a space. Text without spaces (Chinese, Japanese, Thai) is parted wherever
    a character is complete.
    """
    found: list[Word] = []
    word: list[int] = []
    for index, token in enumerate([*tokens, tokenizer.special.eot]):
        special = token >= tokenizer.special.eot
        piece = b"" if special else tokenizer.bytes_of([token])
        starts = piece.startswith(b" ") or _is_dense(tokenizer.bytes_of(word), piece)
        if word and (special or starts):
            found.append(Word(tuple(word), index))
            word = []
        if not special:
            word.append(token)
    return found


def complete_segments(tokens: Sequence[int], timestamp_begin: int) -> list[int]:
    """Indices where a segment is over and another begins: between two timestamps in a row."""
    return [
        i
        for i in range(1, len(tokens))
        if tokens[i - 1] >= timestamp_begin and tokens[i] >= timestamp_begin
    ]


def shift_tokens(tokens: Sequence[int], steps: int, timestamp_begin: int) -> list[int]:
    """The same hypothesis for a window that begins `steps` timestamps (0.02 s each) later."""
    return [
        max(token - steps, timestamp_begin) if token >= timestamp_begin else token
        for token in tokens
    ]


def _is_dense(before: bytes, piece: bytes) -> bool:
    """Whether a new character of a script without spaces begins."""
    try:
        text = before.decode()
        return bool(text) and ord(text[-1]) >= 0x0E00 and ord(piece.decode()[0]) >= 0x0E00
    except UnicodeDecodeError:
        return False
