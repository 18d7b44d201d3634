"""What every tokenizer of a translation model does, whatever its family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["TextTokenizer"]


class TextTokenizer(Protocol):
    """Text → source ids, target ids → text.

    source_language, target_language: as the model's files state them, or None.
    source_codes, target_codes: the languages to choose from; empty where there is no choice.
    model_max_length: the longest source in tokens, all of encode's, or None.
    plain_quotes: it has read typewriter quotes in training, and no others.
    """

    source_language: str | None
    target_language: str | None
    source_codes: tuple[str, ...]
    target_codes: tuple[str, ...]
    model_max_length: int | None
    plain_quotes: bool

    def encode(self, text: str, code: str | None = None, origin: str | None = None) -> list[int]:
        """Source ids of a sentence, with all that the model needs around them.

        code: one of target_codes; origin: one of source_codes.
        """
        ...

    def unknown(self, text: str) -> tuple[str, ...]:
        """The pieces of a text that the model has no id for, as they stand in it."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of target ids. Special tokens and ids outside the vocabulary leave no trace."""
        ...

    def source_text(self, ids: Iterable[int]) -> str:
        """What source ids stand for; special tokens may leave a trace, or none."""
        ...

    def start(self, code: str | None) -> int | None:
        """What the decoder starts from for a target; None: from what the folder says."""
        ...

    def opening(self, code: str | None) -> tuple[int, ...]:
        """What a translation into a target is made to begin with."""
        ...
