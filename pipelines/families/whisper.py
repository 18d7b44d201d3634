"""Whisper: also `.en`, turbo and distilled models."""

from __future__ import annotations

from functools import partial

from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import Family

WHISPER = Family(
    "whisper",
    "asr",
    files=(("tokenizer.json", "vocab.json"), ("tokenizer.json", "merges.txt")),
    architecture=partial(bart_architecture, layers=Layers(), source="audio"),
)
