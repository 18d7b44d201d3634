"""Text ↔ pieces ↔ ids, for the vocabularies of many languages and of T5.

A text is only a text: nothing in it becomes a special token, whatever it is spelt like.
transformers reads "</s>" in a text as the end of it, and "eng_Latn" as a language.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers
from sentencepiece import SentencePieceProcessor

from pipelines.errors import CheckpointError
from pipelines.translation.tokenizers.files import read_json, read_spm, read_vocabulary

__all__ = ["TokenizersModel", "SubwordModel", "SentencePieceModel"]

_SPACE = "▁"  # sentencepiece's mark for a space
_REPLACEMENT = "\ufffd"
# Lone surrogates (what "surrogateescape" leaves of undecodable bytes) have no UTF-8.
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)
# No character: stands before what no text can spell.
_NO_ID = "\ufdd0"


class SubwordModel(Protocol):
    """ids: of the special tokens by their name. size: how many ids the vocabulary has, special
    ones included, of which the languages may be missing."""

    ids: dict[str, int]
    size: int

    def encode(self, text: str) -> list[int]: ...

    def unknown(self, text: str) -> tuple[str, ...]:
        """The pieces of a text that have no id, as they stand in it."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Special ones, and those outside the vocabulary, leave no trace."""
        ...


class SentencePieceModel:
    """A sentencepiece model.

    vocabulary: the ids of pieces, where they are not those of the model. specials: what comes
    before the pieces, in fairseq's order, where that is not the model's.
    Raises CheckpointError for missing or damaged files.
    """

    def __init__(
        self, path: Path, specials: Sequence[str] = (), vocabulary: Path | None = None
    ) -> None:
        self._spm = read_spm(path)
        special, pieces = _sorted_out(self._spm)
        if vocabulary is not None:
            every = read_vocabulary(vocabulary)
            self.ids = {name: every[name] for name in (*special, *specials) if name in every}
        elif specials:
            self.ids = {name: i for i, name in enumerate(specials)}
            # The model's own special tokens are its first, as fairseq's are here.
            shift = len(specials) - len(special)
            every = {piece: i + shift for piece, i in pieces.items()}
        else:
            self.ids, every = special, pieces
        self.size = max([*every.values(), *self.ids.values()]) + 1
        self._unknown = _unknown_id(self.ids, path)
        self._known = {piece: i for piece, i in every.items() if piece not in self.ids}
        self._pieces = {i: piece for piece, i in self._known.items()}

    def encode(self, text: str) -> list[int]:
        return [self._known.get(piece, self._unknown) for piece in self._split(text)]

    def unknown(self, text: str) -> tuple[str, ...]:
        return tuple(p.replace(_SPACE, "") for p in self._split(text) if p not in self._known)

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._spm.decode_pieces([self._pieces[i] for i in ids if i in self._pieces])
        return text.replace(_SPACE, " ").strip()

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = self._spm.encode(text.translate(_SURROGATES), out_type=str)
        return pieces


class TokenizersModel:
    """A tokenizer.json, which is all that recent exports have.

    Its special tokens are taken out of the model, whose Unigram kind would find them in texts.
    Raises CheckpointError for a missing or damaged file.
    """

    def __init__(self, path: Path) -> None:
        content = read_json(path)
        try:
            added = content.get("added_tokens") or []
            special = {str(t["content"]): int(t["id"]) for t in added if t.get("special")}
            _hide(content["model"], set(special))
            content |= dict.fromkeys(("post_processor", "truncation", "padding"))
            content["added_tokens"] = [t for t in added if not t.get("special")]
            self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path} makes no sense: {error}") from error
        self.ids = special
        self.size = max([*self._tokenizer.get_vocab().values(), *special.values()]) + 1
        self._special = frozenset(special.values())
        self._unknown = _unknown_id(special, path)

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
        plain = text.translate(_SURROGATES).replace(_NO_ID, _REPLACEMENT)
        return self._tokenizer.encode(plain, add_special_tokens=False)


def _sorted_out(spm: SentencePieceProcessor) -> tuple[dict[str, int], dict[str, int]]:
    """The special pieces of a model, and the others."""
    special: dict[str, int] = {}
    others: dict[str, int] = {}
    for i, piece in enumerate(spm.id_to_piece(list(range(spm.get_piece_size())))):
        is_special = spm.is_control(i) or spm.is_unknown(i)
        (special if is_special else others)[piece] = i
    return special, others


def _hide(model: dict[str, Any], special: set[str]) -> None:
    """Spell the special tokens of a model's vocabulary as no text can, but for the unknown one,
    by which a BPE model names what it does not know."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        keep = model.get("unk_token")
        model["vocab"] = {
            _NO_ID + piece if piece in special and piece != keep else piece: i
            for piece, i in vocabulary.items()
        }
    else:
        model["vocab"] = [
            [_NO_ID + piece if piece in special else piece, score] for piece, score in vocabulary
        ]


def _unknown_id(ids: Mapping[str, int], path: Path) -> int:
    if "<unk>" not in ids:
        raise CheckpointError(f"{path} lacks the token '<unk>'")
    return ids["<unk>"]
