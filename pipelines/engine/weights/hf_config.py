"""Hugging Face checkpoints of each model family, translated into the terms of the native model.

`architecture_of` translates a config.json, `checkpoint_names` the names of tensors. A new family
is one function here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.engine.weights.architecture import (
    Activation,
    Architecture,
    RelativePositions,
    Stack,
)
from pipelines.errors import CheckpointError

__all__ = ["architecture_of", "checkpoint_names", "read_config"]

# Names of activations in configs; some have several.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder.

    Raises:
        CheckpointError: it is missing, unreadable, or not a JSON object.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a model folder: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return config


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
    """The architecture that a config.json describes.

    Args:
        config: content of the file.
        where: name of the model in errors.

    Raises:
        CheckpointError: the family is not supported, or a value is missing or impossible.
    """
    family = config.get("model_type")
    build = _BUILDERS.get(str(family))
    if build is None:
        raise CheckpointError(
            f"{where}: model_type {family!r} is not supported; this engine runs "
            f"{', '.join(_BUILDERS)}"
        )
    try:
        return build(config)
    except KeyError as error:
        raise CheckpointError(f"{where}: config.json lacks {error.args[0]!r}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{where}: config.json is invalid: {error}") from error


def _stack(config: Mapping[str, Any], side: str, **differences: Any) -> Stack:
    """A stack from the keys that BART, Marian and their relatives share.

    Args:
        side: "encoder" or "decoder", the prefix of the keys.
        differences: further fields of Stack, of the family.
    """
    d_model, heads = int(config["d_model"]), int(config[f"{side}_attention_heads"])
    if d_model % heads:
        raise ValueError(f"d_model {d_model} does not divide into {heads} heads")
    activation = str(config.get("activation_function", "gelu"))
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation_function {activation!r} is not one of {sorted(_ACTIVATIONS)}")
    return Stack(
        layers=int(config[f"{side}_layers"]),
        heads=heads,
        head_dim=d_model // heads,
        d_model=d_model,
        ffn_dim=int(config[f"{side}_ffn_dim"]),
        activation=_ACTIVATIONS[activation],
        embedding_scale=d_model**0.5 if config.get("scale_embedding") else 1.0,
        **{"position_offset": 0} | differences,
    )


def _eos(config: Mapping[str, Any]) -> tuple[int, ...]:
    eos = config["eos_token_id"]
    return tuple(int(i) for i in eos) if isinstance(eos, list) else (int(eos),)


def _whisper(config: Mapping[str, Any]) -> Architecture:
    def side(name: str, positions: int) -> Stack:
        return _stack(
            config,
            name,
            max_positions=positions,
            positions="table",
            norm_first=True,
            final_norm=True,
            embedding_norm=False,
        )

    return Architecture(
        family="whisper",
        source="audio",
        encoder=side("encoder", int(config["max_source_positions"])),
        decoder=side("decoder", int(config["max_target_positions"])),
        vocab_size=int(config["vocab_size"]),
        source_vocab_size=0,
        num_mel_bins=int(config["num_mel_bins"]),
        start_id=int(config["decoder_start_token_id"]),
        eos_ids=_eos(config),
        pad_id=int(config["pad_token_id"]),
        separate_embeddings=False,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _marian(config: Mapping[str, Any]) -> Architecture:
    for key in ("normalize_before", "normalize_embedding"):
        if config.get(key):
            raise ValueError(f"{key} is set, which no released Marian model uses")

    def side(name: str) -> Stack:
        return _stack(
            config,
            name,
            max_positions=int(config["max_position_embeddings"]),
            # Older checkpoints store these positions (in fp16), recent ones leave them out.
            positions="sinusoidal",
            norm_first=False,
            final_norm=False,
            embedding_norm=False,
        )

    source_vocab = int(config["vocab_size"])
    shared = bool(config.get("share_encoder_decoder_embeddings", True))
    return Architecture(
        family="marian",
        source="tokens",
        encoder=side("encoder"),
        decoder=side("decoder"),
        vocab_size=source_vocab if shared else int(config.get("decoder_vocab_size", source_vocab)),
        source_vocab_size=source_vocab,
        num_mel_bins=0,
        start_id=int(config["decoder_start_token_id"]),
        eos_ids=_eos(config),
        pad_id=int(config["pad_token_id"]),
        separate_embeddings=not shared,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _bart(config: Mapping[str, Any]) -> Architecture:
    """BART, and mBART: BART with pre-norm and a final norm."""
    multilingual = config["model_type"] == "mbart"

    def side(name: str) -> Stack:
        return _stack(
            config,
            name,
            max_positions=int(config["max_position_embeddings"]),
            positions="table",
            position_offset=2,
            norm_first=multilingual,
            final_norm=multilingual,
            embedding_norm=True,
        )

    return _translator("mbart" if multilingual else "bart", config, side)


def _m2m_100(config: Mapping[str, Any]) -> Architecture:
    """M2M100 and NLLB."""

    def side(name: str) -> Stack:
        return _stack(
            config,
            name,
            max_positions=int(config["max_position_embeddings"]),
            positions="fairseq",
            position_offset=2,
            norm_first=True,
            final_norm=True,
            embedding_norm=False,
        )

    return _translator("m2m_100", config, side)


def _translator(
    family: str, config: Mapping[str, Any], side: Callable[[str], Stack]
) -> Architecture:
    """Text to text with one vocabulary: BART, mBART, M2M100."""
    vocab = int(config["vocab_size"])
    return Architecture(
        family=family,
        source="tokens",
        encoder=side("encoder"),
        decoder=side("decoder"),
        vocab_size=vocab,
        source_vocab_size=vocab,
        num_mel_bins=0,
        start_id=int(config.get("decoder_start_token_id", config["eos_token_id"])),
        eos_ids=_eos(config),
        pad_id=int(config["pad_token_id"]),
        separate_embeddings=False,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _t5(config: Mapping[str, Any]) -> Architecture:
    block = str(config.get("feed_forward_proj", "relu"))
    gated, name = block.startswith("gated-"), block.removeprefix("gated-")
    # "gated-gelu" has always meant the approximation that the first T5 code used.
    activation = "gelu_new" if gated and name == "gelu" else name
    if activation not in _ACTIVATIONS:
        raise ValueError(f"feed_forward_proj {block!r} is not supported")
    width = int(config["d_model"])
    # Recent configs have the first key; in older ones a tied head implies scaling.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))

    def side(layers: int, bidirectional: bool) -> Stack:
        return Stack(
            layers=layers,
            heads=int(config["num_heads"]),
            head_dim=int(config["d_kv"]),
            d_model=width,
            ffn_dim=int(config["d_ff"]),
            # Relative positions have no limit; the cache gets room for the length of training.
            max_positions=max(512, int(config.get("n_positions") or 512)),
            activation=_ACTIVATIONS[activation],
            positions="relative",
            position_offset=0,
            embedding_scale=1.0,
            norm_first=True,
            final_norm=True,
            embedding_norm=False,
            relative=RelativePositions(
                int(config.get("relative_attention_num_buckets", 32)),
                int(config.get("relative_attention_max_distance", 128)),
                bidirectional,
            ),
            rms=True,
            norm_eps=float(config.get("layer_norm_epsilon", 1e-6)),
            gated=gated,
            scaled=False,
        )

    layers = int(config["num_layers"])
    vocab, pad = int(config["vocab_size"]), int(config["pad_token_id"])
    return Architecture(
        family="t5",
        source="tokens",
        encoder=side(layers, bidirectional=True),
        decoder=side(int(config.get("num_decoder_layers") or layers), bidirectional=False),
        vocab_size=vocab,
        source_vocab_size=vocab,
        num_mel_bins=0,
        start_id=int(config.get("decoder_start_token_id", pad)),
        eos_ids=_eos(config),
        pad_id=pad,
        separate_embeddings=False,
        tied_head=None,
        head_scale=width**-0.5 if scaled else 1.0,
    )


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Architecture]] = {
    "whisper": _whisper,
    "marian": _marian,
    "bart": _bart,
    "mbart": _bart,
    "m2m_100": _m2m_100,
    "t5": _t5,
}


_LAYER = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.*)\.(weight|bias)")

# Native name → T5's: outside the layers, blocks of a layer, projections of attention.
_T5 = {
    "shared": "shared",
    "encoder.layer_norm": "encoder.final_layer_norm",
    "decoder.layer_norm": "decoder.final_layer_norm",
    "encoder.relative_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "decoder.relative_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
}
_T5_BLOCK = {
    "self_attn_layer_norm": "layer.0.layer_norm",
    "self_attn": "layer.0.SelfAttention",
    "encoder_attn_layer_norm": "layer.1.layer_norm",
    "encoder_attn": "layer.1.EncDecAttention",
    "final_layer_norm": "layer.{last}.layer_norm",
    "fc1": "layer.{last}.DenseReluDense.wi",
    "gate": "layer.{last}.DenseReluDense.wi_0",
    "value": "layer.{last}.DenseReluDense.wi_1",
    "fc2": "layer.{last}.DenseReluDense.wo",
}
_T5_PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}


def checkpoint_names(family: str) -> Callable[[str], str]:
    """A function from the native model's name of a tensor to the checkpoint's.

    The native model uses the names of BART, Marian and M2M100 checkpoints in transformers.
    """
    return _t5_name if family == "t5" else str


def _t5_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match is None:
        bare, _, kind = name.removeprefix("model.").rpartition(".")
        return f"{_T5.get(bare, bare)}.{kind}"
    side, index, block, kind = match.groups()
    part, _, projection = block.partition(".")
    inside = _T5_BLOCK[part].format(last=1 if side == "encoder" else 2)
    end = f".{_T5_PROJECTIONS[projection]}" if projection else ""
    return f"{side}.block.{index}.{inside}{end}.{kind}"
