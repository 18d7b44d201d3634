"""What comes out of a translator: plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Done",
    "SentenceDone",
    "SentenceTranslation",
    "TextDelta",
    "Translation",
    "TranslationEvent",
]


@dataclass(frozen=True)
class SentenceTranslation:
    """One sentence, or one part of a sentence too long for the model.

    tokens: the target ids that `text` came from, eos included; empty when it was copied.
    avg_logprob: mean natural log-probability of the tokens; 0 when there are none.
    copied: `text` is the source itself, because there was nothing in it to translate.
    truncated: the model did not come to an end, and `text` is only the sound beginning.
    warnings: what a reader should know about `text`; usually nothing.
    """

    source: str
    text: str
    tokens: tuple[int, ...] = ()
    avg_logprob: float = 0.0
    copied: bool = False
    truncated: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A whole text. `text` has the line breaks and indentation of `source`.

    warnings: whatever had to be cut or copied, looked like a loop, or could not be read by the
        model, each naming its sentence; empty when all went well.
    """

    source: str
    text: str
    sentences: tuple[SentenceTranslation, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextDelta:
    """More of the translation. All deltas of a text add up to `Translation.text`."""

    text: str


@dataclass(frozen=True)
class SentenceDone:
    """A sentence is complete; its deltas have been sent."""

    source: str
    text: str


@dataclass(frozen=True)
class Done:
    """The text is complete."""

    translation: Translation


TranslationEvent = TextDelta | SentenceDone | Done
