"""Options of a translation."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.decoding_choices import OwnLogitFilter, check_phrases
from pipelines.errors import OptionError
from pipelines.options import Range, check_fields, described, option

_LANGUAGES = "Languages"


@described
@dataclass(frozen=True)
class TranslateOptions:
    """How to translate."""

    target: str | None = option(
        None,
        'The language to translate into ("fr", "fra", ">>fra<<", "fra_Latn", "fr_XX"), for models '
        'with several. A text may override it with a leading ">>fra<<".',
        group=_LANGUAGES,
        flags=(),
    )
    source_language: str | None = option(
        None,
        "The language of the text. Required by models with `source_codes`; also selects the rules "
        "that find sentences. None: the source language of the model.",
        group=_LANGUAGES,
        flags=(),
    )
    split_sentences: bool = option(
        True,
        "False takes each line as one sentence, as models that write summaries do (BART, Pegasus).",
        flags=(),
    )
    beam_size: int = option(
        1,
        "Beams of the search. 1 is greedy; more are slower, and mostly a little better.",
        range=Range(1, whole=True),
    )
    n_best: int = option(
        1,
        "How many results of the search each sentence carries as alternatives, also in JSON; more "
        "than 1 needs as many beams.",
        range=Range(1, whole=True),
    )
    repetition_penalty: float = option(
        1.0,
        "Divides the score of tokens that the sentence has already; 1 is none.",
        range=Range(above=0),
    )
    no_repeat_ngram_size: int = option(
        0,
        "No n-gram of this size occurs twice in a sentence; 0: off.",
        range=Range(0, whole=True),
    )
    prefix: str | None = option(
        None, "Text with which the translation of each text begins; the model continues it."
    )
    suppress_phrases: tuple[str, ...] = option(
        (),
        "Texts that are not written, as the tokenizer spells them.",
        flags=("suppress-phrase",),
    )
    forced_phrases: tuple[str, ...] = option(
        (),
        "Texts that the first sentence of each text contains, if its length allows.",
        flags=("force-phrase",),
    )
    logit_filters: tuple[OwnLogitFilter, ...] = option(
        (), "Your own filters, applied after all others (`pipelines.engine.LogitFilter`).", flags=()
    )
    word_alignments: bool = option(
        False,
        "Add the alignment between source words and translated words, as pairs: 0-0 1-2. It takes "
        "one more pass of the decoder.",
        flags=("alignments",),
    )
    priority: int = option(
        2,
        "Of the requests, on a shared engine: a lower number goes first.",
        range=Range(whole=True),
        flags=(),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_phrases((*self.suppress_phrases, *self.forced_phrases))
        if self.n_best > self.beam_size:
            raise OptionError(f"n_best {self.n_best} needs a beam_size of {self.n_best} or more")
