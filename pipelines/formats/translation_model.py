"""Translation models of CTranslate2, Argos packages among them, as transformers has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.formats.ctranslate2 import CTranslate2File, vocabulary_words
from pipelines.formats.ctranslate2_tensors import layers_of, starts_from_zero
from pipelines.formats.described import CTRANSLATE2_LINK, ForeignModel
from pipelines.json_files import read_json_object

# CTranslate2's numbers of activations (ops/activation.h).
_ACTIVATIONS = {0: "relu", 1: "gelu_new", 2: "silu", 3: "gelu"}
_HEADS = 8  # of models from before the file stated them
_MADE_UP = "madeupword0"  # in the vocabularies of M2M100 and NLLB
# Variables of models that are not read here → what they are.
_UNREAD = {
    "encoder/layer_0/self_attention/relative_attention_bias": "the relative positions of T5",
    "encoder/layer_0/self_attention/relative_position_keys": "relative positions",
    "encoder/layer_0/ffn/linear_0_noact/weight": "gated layers",
    "encoder/layernorm_embedding/gamma": "the normalized embeddings of BART",
    "encoder/embeddings_1/weight": "features beside the words",
}
# Tokenizers that lie beside the weights under these names are used as they are.
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "generation_config.json",
)


def ctranslate2_translation(
    file: CTranslate2File, folder: Path, languages: tuple[str, str] | None, tool: str
) -> ForeignModel:
    """A folder with a translation model.

    Raises:
        CheckpointError: The model is of a kind that the engine does not run, or incomplete.
    """
    for name, what in _UNREAD.items():
        if name in file:
            raise CheckpointError(
                f"{file.path} has {what}, which is not read from CTranslate2 here; use the "
                "original model"
            )
    if "encoder/position_encodings/encodings" not in file:
        raise CheckpointError(f"{file.path} has no table of positions; use the original model")
    path = folder / "config.json"
    stated = read_json_object(path) if path.is_file() else {}
    source, target = _vocabularies(folder)
    if _MADE_UP in source:
        return _many_languages(file, folder, source, tool)
    return _one_pair(file, folder, stated, (source, target), languages, tool)


def _one_pair(
    file: CTranslate2File,
    folder: Path,
    stated: Mapping[str, Any],
    vocabularies: tuple[dict[str, int], dict[str, int]],
    languages: tuple[str, str] | None,
    tool: str,
) -> ForeignModel:
    """A model of Marian or OpenNMT."""
    marian = starts_from_zero(file)
    source, target = ({**ids} for ids in vocabularies)
    special = {
        key: _token(stated, key, default)
        for key, default in (("eos_token", "</s>"), ("unk_token", "<unk>"), ("bos_token", "<s>"))
    }
    if marian:
        for ids in (source, target):
            ids.setdefault("<pad>", len(ids))
    start = "<pad>" if marian else _token(stated, "decoder_start_token", special["bos_token"])
    for token in (special["eos_token"], start):
        if token not in target:
            raise CheckpointError(f"{folder}: the vocabulary lacks {token!r}")
    eos = target[special["eos_token"]]
    pad = target.get("<pad>", target.get("<blank>", eos))
    separate = source != target
    files: dict[str, Any] = {
        "config.json": {
            "model_type": "marian" if marian else "opennmt",
            **_sizes(file, separate, extra=int(marian)),
            "eos_token_id": eos,
            "pad_token_id": pad,
            "decoder_start_token_id": target[start],
            "is_encoder_decoder": True,
        },
        "generation_config.json": {
            "eos_token_id": eos,
            "pad_token_id": pad,
            "decoder_start_token_id": target[start],
            **({"max_length": 512} if marian else {}),
        },
        "tokenizer_config.json": {
            **special,
            "pad_token": "<pad>" if "<pad>" in target else "<blank>",
            "separate_vocabs": separate,
            "add_source_bos": bool(stated.get("add_source_bos", False)),
            # transformers' own tokenizer adds it, and its converter does not say so.
            "add_source_eos": marian or bool(stated.get("add_source_eos", False)),
            **_language_keys(languages),
        },
        "vocab.json": source,
    }
    if separate:
        files["target_vocab.json"] = target
    links = _sentencepiece(folder)
    return ForeignModel(tool, file.path, CTRANSLATE2_LINK, file.kind, files, links)


def _many_languages(
    file: CTranslate2File, folder: Path, vocabulary: Mapping[str, int], tool: str
) -> ForeignModel:
    """M2M100 or NLLB."""
    links = {name: folder / name for name in _TOKENIZERS if (folder / name).is_file()}
    if not {"tokenizer.json", "sentencepiece.bpe.model"} & set(links):
        raise CheckpointError(
            f"{folder} has no tokenizer: copy sentencepiece.bpe.model or tokenizer.json of the "
            "original model into it"
        )
    config = {
        "model_type": "m2m_100",
        **_sizes(file, separate=False),
        "eos_token_id": vocabulary.get("</s>", 2),
        "pad_token_id": vocabulary.get("<pad>", 1),
        "bos_token_id": vocabulary.get("<s>", 0),
        "decoder_start_token_id": vocabulary.get("</s>", 2),
        "is_encoder_decoder": True,
    }
    files: dict[str, Any] = {"config.json": config}
    return ForeignModel(tool, file.path, CTRANSLATE2_LINK, file.kind, files, links)


def _sizes(file: CTranslate2File, separate: bool, extra: int = 0) -> dict[str, Any]:
    """The sizes in config.json. extra: tokens that CTranslate2 leaves out."""
    source = next(
        (name for name in ("encoder/embeddings_0/weight", "encoder/embeddings/weight")
         if name in file),
        "encoder/embeddings_0/weight",
    )  # fmt: skip
    rows, width = _matrix(file, source)
    target_rows, _ = _matrix(file, "decoder/embeddings/weight")
    embeddings = file.variables["decoder/embeddings/weight"]
    projection = file.variables.get("decoder/projection/weight", embeddings)
    config: dict[str, Any] = {
        "d_model": width,
        "vocab_size": rows + extra,
        "decoder_vocab_size": target_rows + extra,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": projection == embeddings,
        "max_position_embeddings": file.shape("encoder/position_encodings/encodings")[0],
        "normalize_before": bool(_setting(file, "pre_norm", 1)),
        "scale_embedding": _scales(file, width),
    }
    if starts_from_zero(file):
        del config["normalize_before"]
    activation = int(_setting(file, "activation", 0))
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{file.path} has the activation {activation}, which is unknown here")
    config["activation_function"] = _ACTIVATIONS[activation]
    for side in ("encoder", "decoder"):
        config[f"{side}_layers"] = layers_of(file, side)
        name = f"{side}/num_heads"
        config[f"{side}_attention_heads"] = int(file.scalar(name, file.scalar("num_heads", _HEADS)))
        config[f"{side}_ffn_dim"] = file.shape(f"{side}/layer_0/ffn/linear_0/weight")[0]
    return config


def _setting(file: CTranslate2File, name: str, default: float) -> float:
    """A setting of the decoder, which older files have for both sides together."""
    return file.scalar(f"decoder/{name}", file.scalar(name, default))


def _scales(file: CTranslate2File, width: int) -> bool:
    """Whether embeddings are multiplied by √width: a flag, or the factor itself."""
    name = next((n for n in ("decoder/scale_embeddings", "scale_embeddings") if n in file), None)
    if name is None:
        return True
    value = file.scalar(name, 1)
    if file.variables[name].kind == "int8":
        return value != 0
    if abs(value - 1) < 1e-6:
        return False
    if abs(value - width**0.5) < 1e-3:
        return True
    raise CheckpointError(f"{file.path} scales its embeddings by {value:g}, which is unknown here")


def _matrix(file: CTranslate2File, name: str) -> tuple[int, int]:
    shape = file.shape(name)
    if len(shape) != 2:
        raise CheckpointError(f"{file.path} is damaged: {name!r} has the shape {list(shape)}")
    return shape[0], shape[1]


def _vocabularies(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Token → id, of the source and of the target."""
    shared = _vocabulary(folder, "shared_vocabulary")
    if shared is not None:
        return shared, shared
    source, target = (_vocabulary(folder, f"{side}_vocabulary") for side in ("source", "target"))
    if source is None or target is None:
        raise CheckpointError(
            f"{folder} is incomplete: it has neither shared_vocabulary nor source_vocabulary and "
            "target_vocabulary (.json or .txt)"
        )
    return source, target


def _vocabulary(folder: Path, name: str) -> dict[str, int] | None:
    words = vocabulary_words(folder, name)
    return None if words is None else {word: index for index, word in enumerate(words)}


def _sentencepiece(folder: Path) -> dict[str, Path]:
    """source.spm and target.spm, or one sentencepiece.model for both."""
    for own in (folder, folder.parent):
        if (own / "source.spm").is_file() and (own / "target.spm").is_file():
            return {name: own / name for name in ("source.spm", "target.spm")}
        if (own / "sentencepiece.model").is_file():
            return dict.fromkeys(("source.spm", "target.spm"), own / "sentencepiece.model")
    raise CheckpointError(
        f"{folder} has no tokenizer: copy source.spm and target.spm of the original model, or "
        "sentencepiece.model, into it"
    )


def _token(stated: Mapping[str, Any], key: str, default: str) -> str:
    value = stated.get(key)
    return value if isinstance(value, str) else default


def _language_keys(languages: tuple[str, str] | None) -> dict[str, str]:
    return dict(zip(("source_lang", "target_lang"), languages, strict=True)) if languages else {}
