"""Results and events of a translation: frozen dataclasses that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.decoding_choices import Alternative as Alternative

Span = tuple[int, int]
"""(start, end) character offsets; end is exclusive."""


@dataclass(frozen=True)
class Alignment:
    """Which source words each word of a translation comes from.

    Attributes:
        source_words, target_words: The spans of the words of each text: what white space
            separates; in scripts without spaces each character.
        links: (source word, target word), as indices into these, in ascending order.
    """

    source_words: tuple[Span, ...]
    target_words: tuple[Span, ...]
    links: tuple[tuple[int, int], ...]

    @property
    def pharaoh(self) -> str:
        """The links in the format of word aligners: "0-0 1-2 1-3"."""
        return " ".join(f"{i}-{j}" for i, j in self.links)


@dataclass(frozen=True)
class SentenceTranslation:
    """The translation of one sentence, or of a part of a sentence that exceeds the model.

    Attributes:
        source: The sentence.
        text: Its translation.
        tokens: The target ids of `text`, eos included; empty for a copy.
        avg_logprob: Mean natural log-probability of the tokens; 0 without tokens.
        logprobs: The natural log-probability of each of the tokens.
        copied: `text` is the source: there was nothing to translate, or no attempt succeeded.
        truncated: The model did not end the translation; `text` is its usable beginning.
        warnings: What a reader should know about `text`; mostly empty.
        alignment: The word alignment, with the option word_alignments.
        alternatives: The `n_best` results of the search, best first; the first is `text`. Empty for
            a single one, for a copy, and where the sentence was translated in parts.
    """

    source: str
    text: str
    tokens: tuple[int, ...] = field(default=(), repr=False)
    avg_logprob: float = 0.0
    copied: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    alignment: Alignment | None = field(default=None, repr=False)
    alternatives: tuple[Alternative, ...] = field(default=(), repr=False)
    logprobs: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Translation:
    """The translation of a text.

    Attributes:
        source: The text.
        text: Its translation, with the line breaks and the indentation of `source`.
        sentences: Its sentences, in order.
        warnings: Sentences that were cut, copied, decoded again because of a loop, or that have
            characters outside the model's vocabulary, each by name; mostly empty.
        alignment: The word alignment of the whole text, with the option word_alignments.
        via: The translation into English that this one translates; None of a direct one.
    """

    source: str
    text: str
    sentences: tuple[SentenceTranslation, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()
    alignment: Alignment | None = field(default=None, repr=False)
    via: Translation | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TranslationDelta:
    """More text of the translation. All deltas of a text add up to `Translation.text`."""

    text: str


@dataclass(frozen=True)
class SentenceDone:
    """A sentence is complete.

    The deltas before add up to it, after white space and controls of direction before it.
    """

    source: str
    text: str


@dataclass(frozen=True)
class TranslationDone:
    """The text is complete."""

    translation: Translation


TranslationEvent = TranslationDelta | SentenceDone | TranslationDone
