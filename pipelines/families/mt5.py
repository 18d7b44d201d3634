"""mT5: T5's second kind, trained for its task by others, mostly without a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.families.architecture import Architecture
from pipelines.families.family import Family
from pipelines.families.t5 import T5, t5_architecture


def _architecture(config: Mapping[str, Any]) -> Architecture:
    config = {"feed_forward_proj": "gated-gelu", **config}  # T5's default is "relu".
    # Unlike T5, it never scales what the head reads.
    return replace(t5_architecture(config), head_scale=1.0)


MT5: Family = replace(T5, model_type="mt5", tokenizer="mt5", architecture=_architecture)
