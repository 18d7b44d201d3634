"""Text in one language → text in another, with Marian, NLLB, M2M100, mBART and T5 models."""

from pipelines.translation.options import TranslateOptions
from pipelines.translation.parallel import ParallelTranslator
from pipelines.translation.results import (
    Alignment,
    SentenceDone,
    SentenceTranslation,
    Translation,
    TranslationDelta,
    TranslationDone,
    TranslationEvent,
)
from pipelines.translation.translator import Translator

__all__ = [
    "Alignment",
    "TranslationDone",
    "SentenceDone",
    "SentenceTranslation",
    "ParallelTranslator",
    "TranslationDelta",
    "TranslateOptions",
    "Translation",
    "TranslationEvent",
    "Translator",
]
