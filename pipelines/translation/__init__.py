"""Text in one language → text in another, with Marian, NLLB, M2M100, mBART and T5 models."""

from pipelines.translation.parallel import ParallelTranslator
from pipelines.translation.results import (
    Alignment,
    Done,
    SentenceDone,
    SentenceTranslation,
    TextDelta,
    Translation,
    TranslationEvent,
)
from pipelines.translation.translator import TranslateOptions, Translator

__all__ = [
    "Alignment",
    "Done",
    "SentenceDone",
    "SentenceTranslation",
    "ParallelTranslator",
    "TextDelta",
    "TranslateOptions",
    "Translation",
    "TranslationEvent",
    "Translator",
]
