"""Vocabularies of recognition models without timestamps, languages and tasks: ids to text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from pipelines.errors import CheckpointError
from pipelines.processors import open_text_tokenizer
from pipelines.tokenizer_json import read_tokenizer_json

_SPACE = "\u2581"  # SentencePiece's mark of a space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class LiveTokenizer(Protocol):
    """What live captions need of a vocabulary; WhisperTokenizer is another."""

    @property
    def timestamp_begin(self) -> int | None:
        """The id of the first timestamp; None without timestamps."""
        ...

    def is_text(self, token: int) -> bool:
        """Whether an id stands for text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ...

    def text(self, ids: Iterable[int]) -> str:
        """Text of the ids that stand for text, invalid UTF-8 replaced."""
        ...

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """UTF-8 bytes of ids; may begin or end inside a character."""
        ...


class PlainTokenizer:
    """SentencePiece's vocabulary in a tokenizer.json, as Moonshine has it.

    A word begins with a space; characters outside the vocabulary are spelled by their bytes.
    """

    timestamp_begin: int | None = None

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            CheckpointError: Its tokenizer.json is missing, damaged, or of another kind.
        """
        path = folder / "tokenizer.json"
        try:
            content = read_tokenizer_json(path)
            self._tokenizer = Tokenizer.from_str(json.dumps(content))
        except FileNotFoundError:
            raise CheckpointError(f"{folder} has no tokenizer.json") from None
        except CheckpointError:
            raise
        except Exception as error:  # the tokenizers package raises bare Exception
            raise CheckpointError(f"{folder}: the tokenizer cannot be read: {error}") from error
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if not any(token.startswith(_SPACE) for token in ids):
            raise CheckpointError(f"{folder}: its tokenizer.json is not of SentencePiece's kind")
        self._bytes = {index: _bytes_of(token) for token, index in ids.items()}
        added = content.get("added_tokens") or ()
        self._special = frozenset(token["id"] for token in added if token.get("special"))

    def __len__(self) -> int:
        return 1 + max(self._bytes)

    def is_text(self, token: int) -> bool:
        """Whether an id stands for text."""
        return token in self._bytes and token not in self._special

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ids: list[int] = self._tokenizer.encode(text.strip(), add_special_tokens=False).ids
        return ids

    def text(self, ids: Iterable[int]) -> str:
        """Text of the ids that stand for text, invalid UTF-8 replaced."""
        return self.bytes_of(i for i in ids if self.is_text(i)).decode("utf-8", errors="replace")

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """UTF-8 bytes of ids; may begin or end inside a character."""
        return b"".join(self._bytes.get(index, b"") for index in ids)


class TransformersTokenizer:
    """A tokenizer of transformers."""

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError and ModelError as `open_text_tokenizer`."""
        self._tokenizer: Any = open_text_tokenizer(folder)
        self._special = frozenset(self._tokenizer.all_special_ids)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def text(self, ids: Iterable[int]) -> str:
        """Text of the ids that stand for text."""
        text: str = self._tokenizer.decode([i for i in ids if i not in self._special])
        return text


def _bytes_of(token: str) -> bytes:
    match = _BYTE.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_SPACE, " ").encode()
