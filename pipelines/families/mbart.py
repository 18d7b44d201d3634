"""mBART and mBART-50."""

from __future__ import annotations

from functools import partial

from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import Family

MBART = Family(
    "mbart",
    "translation",
    files=(("sentencepiece.bpe.model", "tokenizer.json"),),
    tokenizer="mbart",
    architecture=partial(bart_architecture, layers=Layers(position_offset=2, embedding_norm=True)),
)
