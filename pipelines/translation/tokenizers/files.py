"""Reading of tokenizer files, with errors that name the file, and sentencepiece's conventions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from pipelines.errors import CheckpointError
from pipelines.json_files import TOKENIZER_BYTES, check_regular, read_model_json
from pipelines.text import REPLACEMENT

SPACE = "▁"
"""sentencepiece's mark for a space."""

SURROGATES = dict.fromkeys(range(0xD800, 0xE000), REPLACEMENT)
"""Table for str.translate. Lone surrogates (from "surrogateescape") cannot be encoded as UTF-8."""


def read_vocabulary(path: Path) -> dict[str, int]:
    """Piece → id, from a JSON file. Raises CheckpointError."""
    vocabulary = read_model_json(path)
    if not all(isinstance(index, int) for index in vocabulary.values()):
        raise CheckpointError(f"{path} is not a vocabulary: it must map pieces to ids")
    return vocabulary


def read_spm(path: Path) -> SentencePieceProcessor:
    """A sentencepiece model. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is incomplete: it has no {path.name}")
    try:
        check_regular(path, TOKENIZER_BYTES)
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not a sentencepiece model: {error}") from error


def token_content(token: Any, default: str) -> str:
    """A special token, which a config has as a string or as {"content": …}."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else default


def name_or_none(language: Any) -> str | None:
    """A language in a config; None for anything but a non-empty string."""
    return language if isinstance(language, str) and language else None


def read_model_max_length(config: Mapping[str, Any]) -> int | None:
    """model_max_length of a tokenizer_config.json; None where it has no limit."""
    longest = config.get("model_max_length")
    # transformers writes 1e30 for "unlimited".
    limited = isinstance(longest, int | float) and 0 < longest < 1_000_000
    return int(longest) if limited else None  # type: ignore[arg-type]  # a number, see above
