"""Pegasus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.families.architecture import Architecture
from pipelines.families.bart import Layers, bart_architecture
from pipelines.families.family import TOKENIZER_FILES, Family


def _architecture(config: Mapping[str, Any]) -> Architecture:
    start = config.get("decoder_start_token_id")
    if start is None:  # Unlike BART, Pegasus then starts from padding.
        start = config["pad_token_id"]
    layers = Layers(positions="sinusoidal")
    return bart_architecture({**config, "decoder_start_token_id": start}, layers)


PEGASUS = Family(
    "pegasus",
    "translation",
    files=(TOKENIZER_FILES,),
    whole_lines=True,
    architecture=_architecture,
)
