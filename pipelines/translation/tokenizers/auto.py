"""The tokenizer of a model folder, by the model's family."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pipelines.errors import EdgeError, UnsupportedTask
from pipelines.languages import two_letter
from pipelines.translation.generation_config import GenerationDefaults
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.marian import MarianTokenizer
from pipelines.translation.tokenizers.multilingual import MultilingualTokenizer
from pipelines.translation.tokenizers.t5 import T5Tokenizer

__all__ = ["model_languages", "open_tokenizer"]

_MANY = ("m2m_100", "mbart", "t5")


def open_tokenizer(
    folder: Path, family: str, defaults: GenerationDefaults, name: str
) -> TextTokenizer:
    """Raises CheckpointError for missing or damaged files, UnsupportedTask for a model that does
    not translate."""
    if family == "marian":
        return MarianTokenizer(folder)
    if family in _MANY:
        return _many(folder, family, (*defaults.forced, defaults.start_id), name)
    raise UnsupportedTask(f"{name} is a {family} model, which cannot translate text here")


@lru_cache(maxsize=64)
def model_languages(folder: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The languages that a model has to be told of: sources and targets, in two letters where
    there are any. None for Marian, and for what cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family = config.get("model_type")
        if family not in _MANY:
            return None
        generation = folder / "generation_config.json"
        if generation.is_file():
            config = json.loads(generation.read_text(encoding="utf-8"))
        begins = (config.get("forced_bos_token_id"), config.get("decoder_start_token_id"))
        known = _many(folder, family, tuple(i for i in begins if isinstance(i, int)), name)
    except (OSError, ValueError, AttributeError, EdgeError):
        return None
    targets = known.target_codes or filter(None, [known.target_language])
    return _short(known.source_codes), _short(targets)


def _many(folder: Path, family: str, begins: tuple[int, ...], name: str) -> TextTokenizer:
    if family == "t5":
        return T5Tokenizer(folder, name)
    return MultilingualTokenizer(folder, family, begins)


def _short(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(two_letter(code) or code for code in codes))
