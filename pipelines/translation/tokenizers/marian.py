"""Marian's tokenizer: two sentencepiece models and a vocabulary, as Hugging Face folders hold them.

Equal to transformers' MarianTokenizer (without sacremoses) but for two things, both because a
text is only a text: "</s>" and the like in it are read as characters, and a leading ">>" that
opens none of the model's language codes is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.errors import CheckpointError
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.files import (
    longest_source,
    name_or_none,
    read_json,
    read_spm,
    read_vocabulary,
    token_content,
)

__all__ = ["StreamingDetokenizer", "MarianTokenizer"]

_SPACE = "▁"  # sentencepiece's mark for a space
_REPLACEMENT = "\ufffd"
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)


class MarianTokenizer:
    """Text → source ids, target ids → text.

    source_language, target_language: as tokenizer_config.json has them, or None.
    target_codes: the languages of the ">>xxx<<" tokens, without the angle brackets; may be empty.
    model_max_length: the longest source in tokens, eos included, or None.
    source_codes: none, for the source needs no code. plain_quotes: Marian models know no others.
    eos_id, unk_id: ids in the source vocabulary.

    Raises CheckpointError for a folder with missing or damaged files.
    """

    source_codes: tuple[str, ...] = ()
    plain_quotes = True

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        config = read_json(folder / "tokenizer_config.json", optional=True)
        self.source_language = name_or_none(config.get("source_lang"))
        self.target_language = name_or_none(config.get("target_lang"))
        self.model_max_length = longest_source(config)

        self._source = read_spm(folder / "source.spm")
        self._target = read_spm(folder / "target.spm")
        vocabulary = read_vocabulary(folder / "vocab.json")
        target_vocabulary = vocabulary
        if config.get("separate_vocabs"):
            target_vocabulary = read_vocabulary(folder / "target_vocab.json")
        self._ids = vocabulary
        self._source_pieces = {index: piece for piece, index in vocabulary.items()}
        self._pieces = {index: piece for piece, index in target_vocabulary.items()}

        eos, unk, pad = (
            token_content(config.get(f"{name}_token"), default)
            for name, default in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>"))
        )
        for special in (eos, unk):
            if special not in vocabulary:
                raise CheckpointError(f"{folder / 'vocab.json'} lacks the token {special!r}")
        self.eos_id, self.unk_id = vocabulary[eos], vocabulary[unk]
        self._specials = {eos, unk, pad}
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

    def encode(self, text: str, code: str | None = None, origin: str | None = None) -> list[int]:
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

    def source_text(self, ids: Iterable[int]) -> str:
        """The text of source ids, target codes spelt out."""
        said = [self._source_pieces.get(index, "") for index in ids]
        text: str = self._source.decode_pieces([p for p in said if p and p not in self._specials])
        return text.replace(_SPACE, " ").strip()

    def start(self, code: str | None) -> int | None:
        """None: what the folder says."""
        return None

    def opening(self, code: str | None) -> tuple[int, ...]:
        """Nothing: the source says what the target shall be."""
        return ()

    def _split(self, text: str) -> list[str]:
        # Lone surrogates (what "surrogateescape" leaves of undecodable bytes) have no UTF-8.
        pieces: list[str] = self._source.encode(text.translate(_SURROGATES), out_type=str)
        return pieces


class StreamingDetokenizer:
    """Target ids as they come → text as it becomes certain.

    What `push` and `finish` return adds up to `Tokenizer.decode` of all the ids. A character of
    which only some bytes are there, and a space that may turn out to be the last, are held back.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
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
