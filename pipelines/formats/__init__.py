"""Model files of other programs, read where they lie: CTranslate2, openai-whisper, whisper.cpp.

Each module reads one format: its header, in bounded time and memory, and its tensors under the
names of transformers. Everything is numpy; torch is imported for openai-whisper's .pt only. To know
such models by their names takes neither.
"""

from pipelines.formats.described import LINKS, PT_LINK, ForeignModel
from pipelines.formats.detect import foreign_model, is_foreign
from pipelines.formats.stored import TensorReader, open_tensors, transformers_name

__all__ = [
    "LINKS",
    "PT_LINK",
    "ForeignModel",
    "TensorReader",
    "foreign_model",
    "is_foreign",
    "open_tensors",
    "transformers_name",
]
