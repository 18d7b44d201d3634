"""Translation of text with Marian, NLLB, M2M100, mBART and T5 models.

`Translator` is the interface; `translator.py` says through which files a text passes. Names are
imported when they are first used, so that options and results are available without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.translation.options import TranslateOptions, TranslateOverrides
    from pipelines.translation.pair import PairTranslator
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

# Public name → module.
_HOMES = {
    "PairTranslator": "pair",
    "ParallelTranslator": "parallel",
    "TranslateOptions": "options",
    "TranslateOverrides": "options",
    "Translator": "translator",
}

__all__ = [
    "Alignment",
    "PairTranslator",
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'results')}"), name)
