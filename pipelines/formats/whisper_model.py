"""Whisper models of CTranslate2, openai-whisper and ggml as transformers has them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.formats.alignment_heads import known_alignment_heads
from pipelines.formats.binary import StoredArray
from pipelines.formats.ctranslate2 import CTranslate2File, vocabulary_words
from pipelines.formats.ctranslate2_tensors import layers_of
from pipelines.formats.described import (
    CTRANSLATE2_LINK,
    GGML_LINK,
    GGUF_LINK,
    PT_LINK,
    ForeignModel,
)
from pipelines.formats.ggml import read_ggml
from pipelines.formats.gguf import read_gguf
from pipelines.formats.stored import transformers_name
from pipelines.formats.whisper_dims import WhisperDims
from pipelines.formats.whisper_vocabulary import (
    installed_tokens,
    tokens_of_words,
    vocabulary_files,
)
from pipelines.json_files import check_regular, read_json_object

_HEAD_DIM = 64  # of every published model
_MOST_BYTES = 1 << 40
# openai-whisper's name of a size → ours.
_DIMS = {
    "n_vocab": "vocab_size",
    "n_mels": "mels",
    "n_audio_ctx": "source_positions",
    "n_text_ctx": "target_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_heads",
    "n_text_head": "decoder_heads",
    "n_audio_layer": "encoder_layers",
    "n_text_layer": "decoder_layers",
}


def ctranslate2_whisper(file: CTranslate2File, folder: Path) -> ForeignModel:
    """A folder of faster-whisper.

    Raises:
        CheckpointError: A variable or the tokenizer is missing, or config.json is damaged.
    """
    width, mels, _ = _sides(file.shape("encoder/conv1/weight"), 3, str(file.path))
    dims = WhisperDims.checked(
        str(file.path),
        vocab_size=file.shape("decoder/embeddings/weight")[0],
        mels=mels,
        source_positions=file.shape("encoder/position_encodings/encodings")[0],
        target_positions=file.shape("decoder/position_encodings/encodings")[0],
        d_model=width,
        encoder_layers=layers_of(file, "encoder"),
        decoder_layers=layers_of(file, "decoder"),
        **{
            f"{side}_heads": int(file.scalar(f"{side}/num_heads", width // _HEAD_DIM))
            for side in ("encoder", "decoder")
        },
    )
    path = folder / "config.json"
    config = read_json_object(path) if path.is_file() else {}
    given = {
        "alignment_heads": config.get("alignment_heads"),
        "suppress_tokens": config.get("suppress_ids"),
        "begin_suppress_tokens": config.get("suppress_ids_begin"),
    }
    generation = {key: value for key, value in given.items() if value is not None}
    tokens = partial(_ctranslate2_tokens, folder, dims)
    return _whisper(
        "CTranslate2", file.path, CTRANSLATE2_LINK, file.kind, dims, tokens, folder, generation
    )


def ggml_whisper(path: Path) -> ForeignModel:
    """A file of whisper.cpp. Raises CheckpointError where it is damaged."""
    file = read_ggml(path)
    kind, tokens = _kind(file.arrays), lambda: file.tokens
    return _whisper("whisper.cpp", path, GGML_LINK, kind, file.dims, tokens, path.parent)


def gguf_whisper(path: Path) -> ForeignModel:
    """A GGUF file of Whisper, whose sizes are those of its tensors.

    Raises:
        CheckpointError: It is damaged, or holds another model.
    """
    arrays = read_gguf(path)
    shapes = {transformers_name(name): stored.shape for name, stored in arrays.items()}
    dims = _dims_of(shapes, path)
    tokens = partial(installed_tokens, dims, str(path))
    return _whisper("GGUF", path, GGUF_LINK, _kind(arrays), dims, tokens, path.parent)


def pt_whisper(path: Path) -> ForeignModel:
    """A file of openai-whisper.

    Raises:
        CheckpointError: It is damaged, holds more than tensors, or is no model of Whisper.
    """
    import torch  # here: it takes 2 s, and only this format needs it

    try:
        check_regular(path, _MOST_BYTES)
        content = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is damaged or holds more than tensors, which could run code; it is not loaded"
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]
        raise CheckpointError(f"{path} is damaged or incomplete: {reason}") from error
    sizes = content.get("dims") if isinstance(content, dict) else None
    if not isinstance(sizes, dict) or not all(isinstance(sizes.get(key), int) for key in _DIMS):
        raise CheckpointError(
            f"{path} is not a model of openai-whisper: it does not state the model's sizes"
        )
    dims = WhisperDims.checked(str(path), **{ours: sizes[key] for key, ours in _DIMS.items()})
    state = content.get("model_state_dict")
    tensors = state.values() if isinstance(state, dict) else ()
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    kind = max(set(kinds), key=kinds.count) if kinds else "float32"
    tokens = partial(installed_tokens, dims, str(path))
    return _whisper("openai-whisper", path, PT_LINK, kind, dims, tokens, path.parent)


def _whisper(
    tool: str,
    weights: Path,
    link: str,
    kind: str,
    dims: WhisperDims,
    tokens: Callable[[], Sequence[bytes]],
    folder: Path,
    generation: Mapping[str, Any] | None = None,
) -> ForeignModel:
    """The files of a model with these sizes."""
    name = folder.name if weights.name == "model.bin" else weights.name
    tokenizer = folder / "tokenizer.json"
    has_tokenizer = tokenizer.is_file()
    special = dims.special | (_special_tokens(tokenizer) if has_tokenizer else {})
    files: dict[str, Any] = {
        "config.json": dims.config(special),
        "generation_config.json": {
            **dims.generation_config(special, known_alignment_heads(name)),
            **(generation or {}),
        },
        "preprocessor_config.json": dims.preprocessor_config(),
    }
    if not has_tokenizer:
        files |= vocabulary_files(tokens(), dims, str(weights))
    links = {"tokenizer.json": tokenizer} if has_tokenizer else {}
    return ForeignModel(tool, weights, link, kind, files, links)


def _ctranslate2_tokens(folder: Path, dims: WhisperDims) -> list[bytes]:
    words = vocabulary_words(folder, "vocabulary")
    return installed_tokens(dims, str(folder)) if words is None else tokens_of_words(words)


def _special_tokens(tokenizer: Path) -> dict[str, int]:
    """The special tokens that a tokenizer.json states, and their ids."""
    added = read_json_object(tokenizer, 256 << 20).get("added_tokens")
    stated = [token for token in (added if isinstance(added, list) else ()) if _is_token(token)]
    return {token["content"]: token["id"] for token in stated}


def _is_token(token: object) -> bool:
    return (
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and isinstance(token.get("id"), int)
    )


def _dims_of(shapes: Mapping[str, tuple[int, ...]], path: Path) -> WhisperDims:
    """The sizes of a model by the shapes of its tensors."""

    def shape(name: str, dimensions: int) -> tuple[int, ...]:
        if name not in shapes:
            raise CheckpointError(f"{path} is not a Whisper model: it has no {name!r}")
        return _sides(shapes[name], dimensions, str(path))

    def layers(side: str) -> int:
        names = {n.split(".")[3] for n in shapes if n.startswith(f"model.{side}.layers.")}
        return len(names)

    width, mels, _ = shape("model.encoder.conv1.weight", 3)
    return WhisperDims.checked(
        str(path),
        vocab_size=shape("model.decoder.embed_tokens.weight", 2)[0],
        mels=mels,
        source_positions=shape("model.encoder.embed_positions.weight", 2)[0],
        target_positions=shape("model.decoder.embed_positions.weight", 2)[0],
        d_model=width,
        encoder_heads=width // _HEAD_DIM,
        decoder_heads=width // _HEAD_DIM,
        encoder_layers=layers("encoder"),
        decoder_layers=layers("decoder"),
    )


def _sides(shape: tuple[int, ...], dimensions: int, where: str) -> tuple[int, ...]:
    if len(shape) != dimensions:
        raise CheckpointError(f"{where} is damaged: a tensor has the shape {list(shape)}")
    return shape


def _kind(arrays: Mapping[str, StoredArray]) -> str:
    """The kind of number that takes the most bytes."""
    sizes: dict[str, int] = {}
    for stored in arrays.values():
        sizes[stored.kind] = sizes.get(stored.kind, 0) + stored.size
    return max(sizes, key=lambda kind: sizes[kind]) if sizes else "float32"
