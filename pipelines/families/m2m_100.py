"""M2M100 and NLLB."""

from __future__ import annotations

from functools import partial

from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import Family

M2M_100 = Family(
    "m2m_100",
    "translation",
    files=(("sentencepiece.bpe.model", "tokenizer.json"),),
    tokenizer="m2m_100",
    architecture=partial(bart_architecture, layers=Layers(positions="fairseq", position_offset=2)),
)
