"""T5's tokenizer: what to do with a text is said in words in front of it.

Equal to transformers' T5Tokenizer, but that nothing in a text becomes a special token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pipelines.errors import CheckpointError, OptionError, UnsupportedTask
from pipelines.translation.tokenizers.files import longest_source, read_json
from pipelines.translation.tokenizers.subword import (
    SentencePieceModel,
    SubwordModel,
    TokenizersModel,
)

__all__ = ["T5Tokenizer"]

_SPM, _JSON = "spiece.model", "tokenizer.json"
_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
# What T5 and Flan-T5 were trained with, for exports of Flan-T5 that leave it out.
_FLAN = {
    ("en", code): f"translate English to {name}: "
    for code, name in (("de", "German"), ("fr", "French"), ("ro", "Romanian"))
}


class T5Tokenizer:
    """As TextTokenizer; codes are two letters, from the translation tasks in config.json.

    Raises CheckpointError for a folder with missing or damaged files, UnsupportedTask for a T5
    that was trained for other things.
    """

    plain_quotes = False

    def __init__(self, folder: Path, name: str) -> None:
        self._pieces = _open(folder)
        self._eos = self._pieces.ids["</s>"]
        self._prefixes = _prefixes(folder, name)
        self.model_max_length = longest_source(
            read_json(folder / "tokenizer_config.json", optional=True)
        )
        self.source_codes = tuple(dict.fromkeys(source for source, _ in self._prefixes))
        self.target_codes = tuple(dict.fromkeys(target for _, target in self._prefixes))
        self.source_language = self.source_codes[0] if len(self.source_codes) == 1 else None
        self.target_language = self.target_codes[0] if len(self.target_codes) == 1 else None

    def encode(self, text: str, code: str | None = None, origin: str | None = None) -> list[int]:
        """Source ids of the task and the sentence, eos last.

        Raises OptionError for a pair that the model was not trained for.
        """
        pair = (origin or self.source_language or "?", code or self.target_language or "?")
        prefix = self._prefixes.get(pair)
        if prefix is None:
            known = ", ".join(f"{source} to {target}" for source, target in self._prefixes)
            raise OptionError(f"this model does not translate {pair[0]} to {pair[1]}, but {known}")
        return [*self._pieces.encode(prefix + text), self._eos]

    def unknown(self, text: str) -> tuple[str, ...]:
        return self._pieces.unknown(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self._pieces.decode(ids)

    def source_text(self, ids: Iterable[int]) -> str:
        return self.decode(ids)

    def start(self, code: str | None) -> int | None:
        return None

    def opening(self, code: str | None) -> tuple[int, ...]:
        return ()


def _open(folder: Path) -> SubwordModel:
    if not (folder / _SPM).is_file() and (folder / _JSON).is_file():
        return TokenizersModel(folder / _JSON)
    return SentencePieceModel(folder / _SPM)


def _prefixes(folder: Path, name: str) -> dict[tuple[str, str], str]:
    """(source, target) → what stands before a text."""
    config = read_json(folder / "config.json")
    found: dict[tuple[str, str], str] = {}
    try:
        for task, values in (config.get("task_specific_params") or {}).items():
            match = _TASK.fullmatch(task)
            if match:
                found[match[1], match[2]] = str(values["prefix"])
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / 'config.json'} makes no sense: {error!r}") from error
    if not found and "flan" in f"{name} {config.get('_name_or_path')}".lower():
        found |= _FLAN
    if not found:
        raise UnsupportedTask(f"{name} is a T5 model whose config.json names no translation task")
    return found
