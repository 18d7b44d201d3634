"""The interface of the tokenizers, and normalization with any of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Protocol

from pipelines.translation.text.passthrough import plain_quotes


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
        """The source ids of a sentence, special tokens included."""
        ...

    def encode_target(self, text: str) -> list[int]:
        """The target ids of a part of a translation, without special tokens.

        Raises:
            OptionError: The text has characters without an id.
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
        return self.decode(ids)

    def decoder_start_id(self, target_language: str | None) -> int | None:
        """The decoder's start token for a target; None: that of generation_config.json."""
        return None

    def forced_prefix(self, target_language: str | None) -> tuple[int, ...]:
        """The ids that a translation into a target begins with; may be empty."""
        return ()


def encode_normalized(
    tokenizer: TextTokenizer,
    text: str,
    target_language: str | None,
    source_language: str | None,
) -> list[int]:
    """The source ids of a normalized sentence, special tokens included."""
    return tokenizer.encode(normalize(tokenizer, text), target_language, source_language)


def normalize(tokenizer: TextTokenizer, text: str) -> str:
    """A text as it is encoded: plain quotes, and unknown letters without their accents."""
    text = normalize_quotes(tokenizer, text)
    for piece in tokenizer.unknown(text):
        text = text.replace(piece, _without_accents(piece))
    return text


def normalize_quotes(tokenizer: TextTokenizer, text: str) -> str:
    """A text with plain quotes, where the model knows no others."""
    return plain_quotes(text) if tokenizer.plain_quotes else text


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
