"""The tokenizer of a folder as transformers reads it, for families without one of our own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.errors import OptionError
from pipelines.json_files import read_model_json
from pipelines.processors import open_text_tokenizer
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.files import (
    SURROGATES,
    name_or_none,
    read_model_max_length,
)


class WrappedTokenizer(TextTokenizer):
    """A tokenizer of transformers: one source, one target language.

    No code of the folder is run.

    Raises:
        CheckpointError: transformers cannot read the tokenizer.
        ModelError: It needs a package that is not installed.
    """

    plain_quotes = False
    source_codes: tuple[str, ...] = ()
    target_codes: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self._tokenizer = open_text_tokenizer(folder)
        config = read_model_json(folder / "tokenizer_config.json", optional=True)
        languages = config.get("langs") or read_model_json(folder / "config.json").get("langs")
        pair = isinstance(languages, list) and len(languages) == 2
        source, target = languages if pair and languages else (None, None)
        self.source_language: str | None = name_or_none(source)
        self.target_language: str | None = name_or_none(target)
        self.model_max_length = read_model_max_length(config)
        self._special = frozenset(self._tokenizer.all_special_ids)
        self._size = len(self._tokenizer)

    def encode(
        self, text: str, target_language: str | None = None, source_language: str | None = None
    ) -> list[int]:
        """Source ids: the sentence, with the special tokens of the family."""
        plain = text.translate(SURROGATES)
        ids: list[int] = self._tokenizer(plain, split_special_tokens=True)["input_ids"]
        return ids

    def encode_target(self, text: str) -> list[int]:
        if unknown := self.unknown(text):
            raise OptionError(f"not in the model's vocabulary: {' '.join(unknown)!r} of {text!r}")
        encoded = self._tokenizer(
            text_target=text, add_special_tokens=False, split_special_tokens=True
        )
        ids: list[int] = encoded["input_ids"]
        return ids

    def unknown(self, text: str) -> tuple[str, ...]:
        """As TextTokenizer.unknown; empty for tokenizers that do not tell where a piece was."""
        if not self._tokenizer.is_fast:
            return ()
        encoded = self._tokenizer(
            text.translate(SURROGATES),
            add_special_tokens=False,
            split_special_tokens=True,
            return_offsets_mapping=True,
        )
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        unknown_id = self._tokenizer.unk_token_id
        return tuple(text[start:stop].strip() for i, (start, stop) in pairs if i == unknown_id)

    def decode(self, ids: Iterable[int]) -> str:
        plain = [i for i in ids if i not in self._special and 0 <= i < self._size]
        text: str = self._tokenizer.decode(plain)
        return text.strip()
