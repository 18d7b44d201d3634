"""Text in one language → text in another, with Marian models."""

from pipelines.translation.results import (
    Done,
    SentenceDone,
    SentenceTranslation,
    TextDelta,
    Translation,
    TranslationEvent,
)
from pipelines.translation.translator import TranslateOptions, Translator

__all__ = [
    "Done",
    "SentenceDone",
    "SentenceTranslation",
    "TextDelta",
    "TranslateOptions",
    "Translation",
    "TranslationEvent",
    "Translator",
]
