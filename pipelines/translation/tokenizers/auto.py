"""The tokenizer class of a model folder, by the model's family."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pipelines.errors import EdgeError, UnsupportedTask
from pipelines.families import TokenizerKind, family_by_type
from pipelines.json_files import read_model_json
from pipelines.languages import two_letter
from pipelines.translation.generation_config import GenerationDefaults
from pipelines.translation.tokenizers.base import TextTokenizer
from pipelines.translation.tokenizers.files import read_spm, read_vocabulary
from pipelines.translation.tokenizers.marian import MarianTokenizer
from pipelines.translation.tokenizers.multilingual import MultilingualTokenizer
from pipelines.translation.tokenizers.t5 import T5Tokenizer
from pipelines.translation.tokenizers.wrapped import WrappedTokenizer


def open_tokenizer(folder: Path, defaults: GenerationDefaults, name: str) -> TextTokenizer:
    """Return the tokenizer in a folder.

    Raises:
        CheckpointError: A file is missing or damaged.
        UnsupportedTask: The model is not one for translation.
    """
    family = family_by_type(read_model_json(folder / "config.json"))
    if family is None:  # of any other family that transformers runs
        return WrappedTokenizer(folder)
    if family.task not in ("translation", None):
        raise UnsupportedTask(
            f"{name} is a {family.model_type} model, which cannot translate text here"
        )
    start_ids = (*defaults.forced_prefix, defaults.decoder_start_id)
    return _open(folder, family.tokenizer, start_ids, name)


@lru_cache(maxsize=64)
def model_languages(folder: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The source and target languages of a multilingual model, without loading its weights.

    Returns:
        (sources, targets), as two-letter codes where there are such. None for a model of one pair
        of languages, and for a folder that cannot be read.
    """
    try:
        config = read_model_json(folder / "config.json")
        family = family_by_type(config)
        if family is None or family.tokenizer in ("marian", "transformers"):
            return None
        generation = folder / "generation_config.json"
        if generation.is_file():
            config = read_model_json(generation)
        ids = (config.get("forced_bos_token_id"), config.get("decoder_start_token_id"))
        start_ids = tuple(index for index in ids if isinstance(index, int))
        tokenizer = _open(folder, family.tokenizer, start_ids, name)
    except (OSError, ValueError, AttributeError, RecursionError, EdgeError):
        return None
    targets = tokenizer.target_codes or tuple(filter(None, [tokenizer.target_language]))
    return (_short(tokenizer.source_codes), _short(targets)) if targets else None


def have_same_vocabulary(folder: Path, other: Path) -> bool:
    """Whether the files of two model folders give each piece the same id.

    Raises:
        CheckpointError: A file is damaged.
    """
    return _vocabulary(folder) == _vocabulary(other)


def _vocabulary(folder: Path) -> object:
    """What gives pieces their ids: JSON vocabularies, else a sentencepiece model's pieces, else
    those of a tokenizer.json."""
    names = ("vocab.json", "target_vocab.json")
    if found := [read_vocabulary(folder / name) for name in names if (folder / name).is_file()]:
        return found
    for name in ("sentencepiece.bpe.model", "spiece.model"):
        if (folder / name).is_file():
            spm = read_spm(folder / name)
            return [spm.id_to_piece(index) for index in range(spm.get_piece_size())]
    model = read_model_json(folder / "tokenizer.json").get("model")
    return model.get("vocab") if isinstance(model, dict) else None


def _open(
    folder: Path, kind: TokenizerKind, start_ids: tuple[int, ...], name: str
) -> TextTokenizer:
    if kind == "marian":
        return MarianTokenizer(folder)
    if kind in ("m2m_100", "mbart"):
        return MultilingualTokenizer(folder, kind, start_ids)
    if kind in ("t5", "mt5"):
        return T5Tokenizer(folder, name, needs_task=kind == "t5")
    return WrappedTokenizer(folder)


def _short(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(two_letter(code) or code for code in codes))
