"""The small files of a tokenizer, read with errors that name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from pipelines.errors import CheckpointError

__all__ = [
    "longest_source",
    "name_or_none",
    "read_json",
    "read_spm",
    "read_vocabulary",
    "token_content",
]


def read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError when it is damaged, or missing unless
    `optional`: then it is empty."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if optional:
            return {}
        raise CheckpointError(f"{path.parent} is incomplete: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return content


def read_vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids. Raises CheckpointError."""
    vocabulary = read_json(path)
    if not all(isinstance(index, int) for index in vocabulary.values()):
        raise CheckpointError(f"{path} is no vocabulary: it must map pieces to ids")
    return vocabulary


def read_spm(path: Path) -> SentencePieceProcessor:
    """Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is incomplete: it has no {path.name}")
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no sentencepiece model: {error}") from error


def token_content(token: Any, default: str) -> str:
    """A special token, which configs hold as a string or as {"content": …}."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else default


def name_or_none(language: Any) -> str | None:
    """A language as a config states it."""
    return language if isinstance(language, str) and language else None


def longest_source(config: Mapping[str, Any]) -> int | None:
    """The most source tokens by a tokenizer_config.json, or None."""
    longest = config.get("model_max_length")
    # transformers writes 1e30 for "unlimited".
    return int(longest) if longest and longest < 1_000_000 else None
