"""Marian's tokenizer, and OpenNMT's: two sentencepiece models and a vocabulary in a folder.

Equal to transformers' MarianTokenizer (without sacremoses), with two exceptions: "</s>" and the
like in a text are read as characters, and a leading ">>" that begins none of the model's language
tokens is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.errors import CheckpointError, OptionError
from pipelines.json_files import read_model_json
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.files import (
    SPACE,
    SURROGATES,
    name_or_none,
    read_model_max_length,
    read_spm,
    read_vocabulary,
    token_content,
)


class MarianTokenizer(TextTokenizer):
    """Tokenizer of Marian models, such as opus-mt.

    Attributes:
        source_language, target_language: By tokenizer_config.json, or None.
        source_codes: Empty: the source language needs no token.
        target_codes: The languages of the ">>xxx<<" tokens, without the brackets; may be empty.
        model_max_length: Source ids at most, eos included, or None.
        plain_quotes: True.
        eos_id, unk_id: Ids of the source vocabulary.

    Raises:
        CheckpointError: A file is missing or damaged.
    """

    source_codes: tuple[str, ...] = ()
    plain_quotes = True

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        config = read_model_json(folder / "tokenizer_config.json", optional=True)
        self.source_language = name_or_none(config.get("source_lang"))
        self.target_language = name_or_none(config.get("target_lang"))
        self.model_max_length = read_model_max_length(config)

        self._source = read_spm(folder / "source.spm")
        self._target = read_spm(folder / "target.spm")
        vocabulary = read_vocabulary(folder / "vocab.json")
        target_vocabulary = vocabulary
        if config.get("separate_vocabs"):
            target_vocabulary = read_vocabulary(folder / "target_vocab.json")
        self._ids, self._target_ids = vocabulary, target_vocabulary
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
        self._special = {eos, unk, pad}
        # OpenNMT's models, which share this tokenizer, begin the decoder with another token and
        # mostly read sources without eos.
        bos = token_content(config.get("bos_token"), "")
        self._special |= {bos} - {""}
        has_bos = bool(config.get("add_source_bos")) and bos in vocabulary
        self._source_bos = [vocabulary[bos]] if has_bos else []
        self._source_eos = [self.eos_id] if config.get("add_source_eos", True) else []
        self._special_target_ids = {target_vocabulary.get(token) for token in self._special}
        self._language_tokens = {
            piece: index
            for piece, index in vocabulary.items()
            if piece.startswith(">>") and piece.endswith("<<")
        }
        self.target_codes = tuple(piece[2:-2] for piece in self._language_tokens)

    def split_code(self, text: str) -> tuple[str | None, str]:
        """(">>fra<< Hello") → ("fra", " Hello"); without a code of this model → (None, text)."""
        end = text.find("<<") + 2
        if text.startswith(">>") and text[:end] in self._language_tokens:
            return text[2 : end - 2], text[end:]
        return None, text

    def encode(
        self, text: str, target_language: str | None = None, source_language: str | None = None
    ) -> list[int]:
        """Source ids: the target language's token, if any, then the sentence, then eos.

        Without target_language, a leading ">>xxx<<" in the text is read as the language.
        """
        if target_language is None:
            target_language, text = self.split_code(text)
        ids = [self._ids.get(piece, self.unk_id) for piece in self._split(text)]
        if target_language is not None:
            ids.insert(0, self._language_tokens[f">>{target_language}<<"])
        return [*self._source_bos, *ids, *self._source_eos]

    def encode_target(self, text: str) -> list[int]:
        pieces: list[str] = self._target.encode(text.translate(SURROGATES), out_type=str)
        if unknown := [piece for piece in pieces if piece not in self._target_ids]:
            raise OptionError(f"not in the model's vocabulary: {' '.join(unknown)!r} of {text!r}")
        return [self._target_ids[piece] for piece in pieces]

    def unknown(self, text: str) -> tuple[str, ...]:
        return tuple(
            piece.replace(SPACE, "") for piece in self._split(text) if piece not in self._ids
        )

    def decode(self, ids: Iterable[int]) -> str:
        pieces = [
            self._pieces[index]
            for index in ids
            if index not in self._special_target_ids and index in self._pieces
        ]
        text: str = self._target.decode_pieces(pieces)
        return text.replace(SPACE, " ").strip()

    def source_text(self, ids: Iterable[int]) -> str:
        """The text of source ids, language tokens included."""
        pieces = [self._source_pieces.get(index, "") for index in ids]
        text: str = self._source.decode_pieces([p for p in pieces if p and p not in self._special])
        return text.replace(SPACE, " ").strip()

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = self._source.encode(text.translate(SURROGATES), out_type=str)
        return pieces


def target_vocabulary_ids(folder: Path) -> tuple[int, ...]:
    """The ids of all pieces in a folder's target.spm, eos included: a shortlist of output tokens.

    The vocabulary of a Marian model joins those of two sentencepiece models. Its training data were
    tokenised with the target's alone, so pieces that only the source has are never correct; but
    half of the output layer's work, the largest of a decoding step, goes into them. (The shortlists
    of Marian and CTranslate2 go further, with a lexicon of the translations of each source word;
    published models come without one.)

    Raises:
        OptionError: The folder has no target.spm.
        CheckpointError: A file is damaged.
    """
    if not (folder / "target.spm").is_file():
        raise OptionError(
            f"{folder.name} has no separate vocabulary of its target language, so no shortlist"
        )
    config = read_model_json(folder / "tokenizer_config.json", optional=True)
    separate = bool(config.get("separate_vocabs"))
    vocabulary = read_vocabulary(folder / ("target_vocab.json" if separate else "vocab.json"))
    target = read_spm(folder / "target.spm")
    pieces = {target.id_to_piece(index) for index in range(target.get_piece_size())}
    return tuple(sorted(index for piece, index in vocabulary.items() if piece in pieces))
