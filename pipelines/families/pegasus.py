"""Pegasus."""

from __future__ import annotations

from functools import partial

from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import Family

__all__ = ["PEGASUS"]

PEGASUS = Family(
    "pegasus",
    "translation",
    files=(("spiece.model", "tokenizer.json"),),
    whole_texts=True,
    architecture=partial(bart_architecture, layers=Layers(positions="sinusoidal")),
)
