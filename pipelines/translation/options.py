"""Options of a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from pipelines.decoding_choices import OwnLogitFilter, check_choices, with_fields
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
        split_sentences: False takes each line as one sentence, as models that write summaries do
            (BART, Pegasus).
        beam_size: Beams of the search. 1 is greedy; more are slower, and mostly a little better.
        n_best: How many results of the search each sentence carries as `alternatives`; more than 1
            needs as many beams.
        repetition_penalty: Divides the score of tokens that the sentence has already; 1 is none.
        no_repeat_ngram_size: No n-gram of this size occurs twice in a sentence; 0: off.
        prefix: Text with which the translation of each text begins; the model continues it.
        suppress_phrases: Texts that are not written, as the tokenizer spells them.
        forced_phrases: Texts that the first sentence of each text contains, if its length allows.
        logit_filters: Your own filters, applied after all others (`pipelines.engine.LogitFilter`).
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
    n_best: int = 1
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    prefix: str | None = None
    suppress_phrases: tuple[str, ...] = ()
    forced_phrases: tuple[str, ...] = ()
    logit_filters: tuple[OwnLogitFilter, ...] = ()
    word_alignments: bool = False
    priority: int = 2

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise OptionError(f"beam_size must be 1 or more, not {self.beam_size}")
        check_choices(
            self.n_best,
            self.repetition_penalty,
            self.no_repeat_ngram_size,
            (*self.suppress_phrases, *self.forced_phrases),
        )
        if self.n_best > self.beam_size:
            raise OptionError(f"n_best {self.n_best} needs a beam_size of {self.n_best} or more")


class TranslateOverrides(TypedDict, total=False):
    """The fields of TranslateOptions as keyword arguments: same names, same types."""

    target: str | None
    source_language: str | None
    split_sentences: bool
    beam_size: int
    n_best: int
    repetition_penalty: float
    no_repeat_ngram_size: int
    prefix: str | None
    suppress_phrases: tuple[str, ...]
    forced_phrases: tuple[str, ...]
    logit_filters: tuple[OwnLogitFilter, ...]
    word_alignments: bool
    priority: int


def with_overrides(
    options: TranslateOptions | None, overrides: TranslateOverrides
) -> TranslateOptions:
    """Options, by default TranslateOptions(), with some fields changed.

    Raises:
        OptionError: An override is not a field of TranslateOptions, or out of its range.
    """
    return with_fields(options or TranslateOptions(), overrides)
