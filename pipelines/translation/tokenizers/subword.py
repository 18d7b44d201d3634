"""Subword models of the multilingual tokenizers and of T5: text ↔ pieces ↔ ids.

Nothing in a text becomes a special token. transformers reads "</s>" in a text as its end, and
"eng_Latn" as a language.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers
from sentencepiece import SentencePieceProcessor

from pipelines.errors import CheckpointError, OptionError
from pipelines.text import REPLACEMENT
from pipelines.tokenizer_json import read_tokenizer_json
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.files import (
    SPACE,
    SURROGATES,
    read_spm,
    read_vocabulary,
)

# A Unicode noncharacter. It is removed from texts, so no text contains a piece that has it.
_NONCHARACTER = "\ufdd0"


class SubwordModel(Protocol):
    """Text ↔ ids.

    Attributes:
        ids: The ids of the special tokens, by name.
        size: The number of ids, special ones included; those of language tokens may be missing.
    """

    ids: dict[str, int]
    size: int

    def encode(self, text: str) -> list[int]: ...

    def vocabulary(self) -> dict[str, int]:
        """All pieces and special tokens with their ids."""
        ...

    def unknown(self, text: str) -> tuple[str, ...]:
        """The pieces of a text that have no id, as they occur in it."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens and ids outside the vocabulary."""
        ...


class SubwordTokenizer(TextTokenizer):
    """A tokenizer over one vocabulary for source and target."""

    _subwords: SubwordModel

    def encode_target(self, text: str) -> list[int]:
        if unknown := self.unknown(text):
            raise OptionError(f"not in the model's vocabulary: {' '.join(unknown)!r} of {text!r}")
        return self._subwords.encode(text)

    def unknown(self, text: str) -> tuple[str, ...]:
        return self._subwords.unknown(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self._subwords.decode(ids)


class SentencePieceModel:
    """A sentencepiece model.

    Args:
        path: The model file.
        special_tokens: The first tokens, in fairseq's order, where that is not the model's.
        vocabulary: A JSON file of ids, where they are not those of the model.

    Raises:
        CheckpointError: A file is missing or damaged.
    """

    def __init__(
        self, path: Path, special_tokens: Sequence[str] = (), vocabulary: Path | None = None
    ) -> None:
        self._spm = read_spm(path)
        special, pieces = _special_and_others(self._spm)
        if vocabulary is not None:
            every = read_vocabulary(vocabulary)
            self.ids = {name: every[name] for name in (*special, *special_tokens) if name in every}
        elif special_tokens:
            self.ids = {name: i for i, name in enumerate(special_tokens)}
            # Both lists of special tokens come first: all other ids move by the difference.
            shift = len(special_tokens) - len(special)
            every = {piece: i + shift for piece, i in pieces.items()}
        else:
            self.ids, every = special, pieces
        self.size = max([*every.values(), *self.ids.values()]) + 1
        self._unknown = _unknown_id(self.ids, path)
        self._known = {piece: i for piece, i in every.items() if piece not in self.ids}
        self._pieces = {i: piece for piece, i in self._known.items()}

    def vocabulary(self) -> dict[str, int]:
        return self._known | self.ids

    def encode(self, text: str) -> list[int]:
        return [self._known.get(piece, self._unknown) for piece in self._split(text)]

    def unknown(self, text: str) -> tuple[str, ...]:
        return tuple(p.replace(SPACE, "") for p in self._split(text) if p not in self._known)

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._spm.decode_pieces([self._pieces[i] for i in ids if i in self._pieces])
        return text.replace(SPACE, " ").strip()

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = self._spm.encode(text.translate(SURROGATES), out_type=str)
        return pieces


class TokenizersModel:
    """A tokenizer.json, the only tokenizer file of recent exports.

    Its special tokens are removed from the model: a Unigram model would find them in texts.

    Raises:
        CheckpointError: The file is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = read_tokenizer_json(path)
            added = content.get("added_tokens") or []
            special = {str(t["content"]): int(t["id"]) for t in added if t.get("special")}
            _hide_special(content["model"], set(special))
            content |= dict.fromkeys(("post_processor", "truncation", "padding"))
            content["added_tokens"] = [t for t in added if not t.get("special")]
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        except CheckpointError:
            raise
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path} is invalid: {error}") from error
        self.ids = special
        self.size = max([*self._tokenizer.get_vocab().values(), *special.values()]) + 1
        self._special = frozenset(special.values())
        self._unknown = _unknown_id(special, path)

    def vocabulary(self) -> dict[str, int]:
        every: dict[str, int] = self._tokenizer.get_vocab()
        return every | self.ids

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._encoding(text).ids
        return ids

    def unknown(self, text: str) -> tuple[str, ...]:
        encoding = self._encoding(text)
        return tuple(
            text[start:stop].strip()
            for i, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
            if i == self._unknown
        )

    def decode(self, ids: Iterable[int]) -> str:
        plain = [i for i in ids if i not in self._special and i < self.size]
        text: str = self._tokenizer.decode(plain, skip_special_tokens=False)
        return text.strip()

    def _encoding(self, text: str) -> Any:
        plain = text.translate(SURROGATES).replace(_NONCHARACTER, REPLACEMENT)
        return self._tokenizer.encode(plain, add_special_tokens=False)


def _special_and_others(spm: SentencePieceProcessor) -> tuple[dict[str, int], dict[str, int]]:
    """Piece → id of the special tokens (control, unknown), and of all others."""
    special: dict[str, int] = {}
    others: dict[str, int] = {}
    for i, piece in enumerate(spm.id_to_piece(list(range(spm.get_piece_size())))):
        is_special = spm.is_control(i) or spm.is_unknown(i)
        (special if is_special else others)[piece] = i
    return special, others


def _hide_special(model: dict[str, Any], special: set[str]) -> None:
    """Rename the special tokens in a model's vocabulary, so that no text contains them.

    A BPE model refers to its unknown token by name: that one is kept.
    """
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        keep = model.get("unk_token")
        model["vocab"] = {
            _NONCHARACTER + piece if piece in special and piece != keep else piece: i
            for piece, i in vocabulary.items()
        }
    else:
        model["vocab"] = [
            [_NONCHARACTER + piece if piece in special else piece, score]
            for piece, score in vocabulary
        ]


def _unknown_id(ids: Mapping[str, int], path: Path) -> int:
    if "<unk>" not in ids:
        raise CheckpointError(f"{path} lacks the token '<unk>'")
    return ids["<unk>"]
