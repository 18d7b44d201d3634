"""Options of a translation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

from pipelines.errors import OptionError

__all__ = ["TranslateOptions", "TranslateOverrides", "with_overrides"]


@dataclass(frozen=True)
class TranslateOptions:
    """How to translate.

    Attributes:
        target: The language to translate into ("fr", "fra", ">>fra<<", "fra_Latn", "fr_XX"), for
            models with several. A text may override it with a leading ">>fra<<".
        source_language: The language of the text. Required by models with `source_codes`; also
            selects the rules that find sentences. Default: the source language of the model.
        split_sentences: False takes each line as one sentence.
        beam_size: Beams of the search. 1 is greedy; more are slower, and mostly a little better.
        word_alignments: Add the alignment between source words and translated words. It takes one
            more pass of the decoder.
        priority: Of the requests, on a shared engine: a lower number goes first.

    Raises:
        OptionError: A value is out of its range.
    """

    target: str | None = None
    source_language: str | None = None
    split_sentences: bool = True
    beam_size: int = 1
    word_alignments: bool = False
    priority: int = 2

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise OptionError(f"beam_size must be 1 or more, not {self.beam_size}")


class TranslateOverrides(TypedDict, total=False):
    """The fields of TranslateOptions as keyword arguments: same names, same types."""

    target: str | None
    source_language: str | None
    split_sentences: bool
    beam_size: int
    word_alignments: bool
    priority: int


def with_overrides(
    options: TranslateOptions | None, overrides: TranslateOverrides
) -> TranslateOptions:
    """Options, by default TranslateOptions(), with some fields changed.

    Raises:
        OptionError: An override is not a field of TranslateOptions, or out of its range.
    """
    try:
        return replace(options or TranslateOptions(), **overrides)
    except TypeError as error:
        raise OptionError(f"no such option: {error}") from None
