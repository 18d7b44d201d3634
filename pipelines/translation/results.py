"""What comes out of a translator: plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Alignment",
    "TranslationDone",
    "SentenceDone",
    "SentenceTranslation",
    "Span",
    "TranslationDelta",
    "Translation",
    "TranslationEvent",
]


Span = tuple[int, int]
"""(first, last + 1) characters of a text"""


@dataclass(frozen=True)
class Alignment:
    """Which words of a source the words of its translation come from.

    source_words, target_words: where the words of each text stand in it: what white space
        separates; in scripts without spaces each character.
    links: (source word, target word) by their numbers from 0, in order.
    """

    source_words: tuple[Span, ...]
    target_words: tuple[Span, ...]
    links: tuple[tuple[int, int], ...]

    @property
    def pharaoh(self) -> str:
        """The links as aligners write them: "0-0 1-2 1-3"."""
        return " ".join(f"{i}-{j}" for i, j in self.links)


@dataclass(frozen=True)
class SentenceTranslation:
    """One sentence, or one part of a sentence too long for the model.

    tokens: the target ids that `text` came from, eos included; empty when it was copied.
    avg_logprob: mean natural log-probability of the tokens; 0 when there are none.
    copied: `text` is the source itself, because there was nothing in it to translate.
    truncated: the model did not come to an end, and `text` is only the sound beginning.
    warnings: what a reader should know about `text`; usually nothing.
    alignment: between the words of `source` and `text`, where the options ask for it.
    """

    source: str
    text: str
    tokens: tuple[int, ...] = ()
    avg_logprob: float = 0.0
    copied: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class Translation:
    """A whole text. `text` has the line breaks and indentation of `source`.

    warnings: whatever had to be cut or copied, looked like a loop, or could not be read by the
        model, each naming its sentence; empty when all went well.
    alignment: between the words of all of `source` and `text`, where the options ask for it.
    """

    source: str
    text: str
    sentences: tuple[SentenceTranslation, ...] = ()
    warnings: tuple[str, ...] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class TranslationDelta:
    """More of the translation. All deltas of a text add up to `Translation.text`."""

    text: str


@dataclass(frozen=True)
class SentenceDone:
    """A sentence is complete; its deltas have been sent."""

    source: str
    text: str


@dataclass(frozen=True)
class TranslationDone:
    """The text is complete."""

    translation: Translation


TranslationEvent = TranslationDelta | SentenceDone | TranslationDone
