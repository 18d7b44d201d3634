"""Translation of text with Marian, NLLB, M2M100, mBART and T5 models.

`Translator` is the interface; `translator.py` says through which files a text passes.
"""

from pipelines.translation.options import TranslateOptions, TranslateOverrides
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
    "ParallelTranslator",
    "SentenceDone",
    "SentenceTranslation",
    "TranslateOptions",
    "TranslateOverrides",
    "Translation",
    "TranslationDelta",
    "TranslationDone",
    "TranslationEvent",
    "Translator",
]
