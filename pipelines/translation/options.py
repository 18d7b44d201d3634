"""Options of a translation."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.engine import Priority
from pipelines.errors import OptionError

__all__ = ["TranslateOptions"]


@dataclass(frozen=True)
class TranslateOptions:
    """How to translate.

    target: the language to translate into ("fr", "fra", ">>fra<<", "fra_Latn", "fr_XX"), for models
        with several.
        A text may choose its own with a leading ">>fra<<".
    source_language: what the text is in, for models that have to be told; and whose rules find the
        sentences. By default that of the model's source.
    split_sentences: False takes each line as one sentence.
    beam_size: above 1, search with so many beams (slower, and mostly a little better).
    word_alignments: also tell which words of the source each word comes from (one more pass).
    priority: whose work goes first on a shared engine.

    Raises OptionError for values that make no sense.
    """

    target: str | None = None
    source_language: str | None = None
    split_sentences: bool = True
    beam_size: int = 1
    word_alignments: bool = False
    priority: Priority = Priority.INTERACTIVE

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise OptionError(f"beam_size must be 1 or more, not {self.beam_size}")
