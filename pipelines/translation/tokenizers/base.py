"""The interface of the tokenizers, and incremental decoding with any of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["REPLACEMENT", "StreamingDetokenizer", "TextTokenizer"]

REPLACEMENT = "\ufffd"
"""Stands for bytes that are no character, or not a complete one yet."""


class TextTokenizer(Protocol):
    """Text → source ids, target ids → text.

    Attributes:
        source_language, target_language: By the model's files, or None.
        source_codes, target_codes: The languages to choose from, as the model spells them; empty
            where there is no choice.
        model_max_length: Source ids at most, special tokens included, or None.
        plain_quotes: The training data had typewriter quotes only.
    """

    source_language: str | None
    target_language: str | None
    source_codes: tuple[str, ...]
    target_codes: tuple[str, ...]
    model_max_length: int | None
    plain_quotes: bool

    def encode(
        self, text: str, target_language: str | None = None, source_language: str | None = None
    ) -> list[int]:
        """The source ids of a sentence, special tokens included.

        Args:
            text: The sentence.
            target_language: One of target_codes.
            source_language: One of source_codes.
        """
        ...

    def unknown(self, text: str) -> tuple[str, ...]:
        """The pieces of a text that have no id, as they occur in it."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of target ids, without special tokens and ids outside the vocabulary."""
        ...

    def source_text(self, ids: Iterable[int]) -> str:
        """The text of source ids, with or without special tokens."""
        ...

    def decoder_start_id(self, target_language: str | None) -> int | None:
        """The decoder's start token for a target; None: that of generation_config.json."""
        ...

    def forced_prefix(self, target_language: str | None) -> tuple[int, ...]:
        """The ids that a translation into a target begins with; may be empty."""
        ...


class StreamingDetokenizer:
    """Target ids one by one → text as soon as it is final.

    The strings that `push` and `finish` return add up to `TextTokenizer.decode` of all ids. An
    incomplete character is held back, and so is a space that may turn out to be the last.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = ""

    def push(self, ids: Iterable[int]) -> str:
        """The text that became final; often a word, sometimes empty."""
        self._ids.extend(ids)
        return self._unsent(self._tokenizer.decode(self._ids).rstrip(REPLACEMENT).rstrip())

    def finish(self) -> str:
        """The text that was held back."""
        return self._unsent(self._tokenizer.decode(self._ids))

    def _unsent(self, text: str) -> str:
        if not text.startswith(self._sent):
            return ""
        new, self._sent = text[len(self._sent) :], text
        return new
