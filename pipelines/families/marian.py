"""Marian (OPUS-MT), and OpenNMT's models of one pair, as CTranslate2 and Argos have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.families.architecture import Architecture
from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import Family

_FILES = (("source.spm",), ("target.spm",), ("vocab.json",))


def _marian(config: Mapping[str, Any]) -> Architecture:
    for key in ("normalize_before", "normalize_embedding"):
        if config.get(key):
            raise ValueError(f"{key} is set, which no released Marian model uses")
    # Older checkpoints store these positions (in fp16), recent ones leave them out.
    layers = Layers(positions="sinusoidal", norm_first=False, final_norm=False)
    return bart_architecture(config, layers, is_pair=True)


def _opennmt(config: Mapping[str, Any]) -> Architecture:
    first = bool(config.get("normalize_before", True))
    # Its positions interleave sines and cosines, and are read from the file.
    return bart_architecture(config, Layers(norm_first=first, final_norm=first), is_pair=True)


MARIAN = Family("marian", "translation", files=_FILES, tokenizer="marian", architecture=_marian)
# `pipelines.formats` writes this model_type; transformers has no such family.
OPENNMT = Family("opennmt", "translation", files=_FILES, tokenizer="marian", architecture=_opennmt)
