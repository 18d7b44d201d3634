"""Marian's tokenizer: two sentencepiece models and a vocabulary, as Hugging Face folders hold them.

Equal to transformers' MarianTokenizer (without sacremoses) but for two things, both because a
text is only a text: "</s>" and the like in it are read as characters, and a leading ">>" that
opens none of the model's language codes is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from pipelines.errors import CheckpointError

__all__ = ["IncrementalDecoder", "Tokenizer"]

_SPACE = "▁"  # sentencepiece's mark for a space
_REPLACEMENT = "\ufffd"
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)


class Tokenizer:
    """Text → source ids, target ids → text.

    source_language, target_language: as tokenizer_config.json has them, or None.
    target_codes: the languages of the ">>xxx<<" tokens, without the angle brackets; may be empty.
    model_max_length: the longest source in tokens, eos included, or None.
    eos_id, unk_id: ids in the source vocabulary.

    Raises CheckpointError for a folder with missing or damaged files.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        config = _read_json(folder / "tokenizer_config.json", optional=True)
        self.source_language = _name(config.get("source_lang"))
        self.target_language = _name(config.get("target_lang"))
        longest = config.get("model_max_length")
        # transformers writes 1e30 for "unlimited".
        self.model_max_length = int(longest) if longest and longest < 1_000_000 else None

        self._source = _read_spm(folder / "source.spm")
        self._target = _read_spm(folder / "target.spm")
        vocabulary = _read_vocabulary(folder / "vocab.json")
        target_vocabulary = vocabulary
        if config.get("separate_vocabs"):
            target_vocabulary = _read_vocabulary(folder / "target_vocab.json")
        self._ids = vocabulary
        self._pieces = {index: piece for piece, index in target_vocabulary.items()}

        eos, unk, pad = (
            _content(config.get(f"{name}_token"), default)
            for name, default in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>"))
        )
        for special in (eos, unk):
            if special not in vocabulary:
                raise CheckpointError(f"{folder / 'vocab.json'} lacks the token {special!r}")
        self.eos_id, self.unk_id = vocabulary[eos], vocabulary[unk]
        self._silent = {target_vocabulary.get(special) for special in (eos, unk, pad)}
        self._codes = {
            piece: index
            for piece, index in vocabulary.items()
            if piece.startswith(">>") and piece.endswith("<<")
        }
        self.target_codes = tuple(piece[2:-2] for piece in self._codes)

    def split_code(self, text: str) -> tuple[str | None, str]:
        """(">>fra<< Hello") → ("fra", " Hello"); no code of this model in front → (None, text)."""
        end = text.find("<<") + 2
        if text.startswith(">>") and text[:end] in self._codes:
            return text[2 : end - 2], text[end:]
        return None, text

    def encode(self, text: str, code: str | None = None) -> list[int]:
        """Source ids of a sentence, the target language first where there is one, eos last.

        code: one of target_codes. Without it, a leading ">>xxx<<" in the text counts.
        """
        if code is None:
            code, text = self.split_code(text)
        ids = [self._ids.get(piece, self.unk_id) for piece in self._split(text)]
        prefix = [] if code is None else [self._codes[f">>{code}<<"]]
        return [*prefix, *ids, self.eos_id]

    def unknown(self, text: str) -> tuple[str, ...]:
        """The pieces of a text that the model has no id for, as they stand in it."""
        return tuple(
            piece.replace(_SPACE, "") for piece in self._split(text) if piece not in self._ids
        )

    def decode(self, ids: Iterable[int]) -> str:
        """The text of target ids. Special tokens and ids outside the vocabulary leave no trace."""
        pieces = [
            self._pieces[index]
            for index in ids
            if index not in self._silent and index in self._pieces
        ]
        text: str = self._target.decode_pieces(pieces)
        return text.replace(_SPACE, " ").strip()

    def _split(self, text: str) -> list[str]:
        # Lone surrogates (what "surrogateescape" leaves of undecodable bytes) have no UTF-8.
        pieces: list[str] = self._source.encode(text.translate(_SURROGATES), out_type=str)
        return pieces


class IncrementalDecoder:
    """Target ids as they come → text as it becomes certain.

    What `push` and `finish` return adds up to `Tokenizer.decode` of all the ids. A character of
    which only some bytes are there, and a space that may turn out to be the last, are held back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._said = ""

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids add for certain; often a word, sometimes nothing."""
        self._ids.extend(ids)
        return self._say(self._tokenizer.decode(self._ids).rstrip(_REPLACEMENT).rstrip())

    def finish(self) -> str:
        """What was held back."""
        return self._say(self._tokenizer.decode(self._ids))

    def _say(self, text: str) -> str:
        if not text.startswith(self._said):
            return ""
        new, self._said = text[len(self._said) :], text
        return new


def _read_json(path: Path, optional: bool = False) -> dict[str, Any]:
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


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = _read_json(path)
    if not all(isinstance(index, int) for index in vocabulary.values()):
        raise CheckpointError(f"{path} is no vocabulary: it must map pieces to ids")
    return vocabulary


def _read_spm(path: Path) -> SentencePieceProcessor:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is incomplete: it has no {path.name}")
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no sentencepiece model: {error}") from error


def _content(token: Any, default: str) -> str:
    """A special token, which configs hold as a string or as {"content": …}."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else default


def _name(language: Any) -> str | None:
    return language if isinstance(language, str) and language else None
