"""Hugging Face checkpoints of each model family, translated into the terms of the native model.

`architecture_of` translates a config.json, `checkpoint_names` the names of tensors. A new family
is one function here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.families.architecture import (
    Activation,
    Architecture,
    RelativePositions,
    RotaryPositions,
    Stack,
    waveform_positions,
)
from pipelines.json_files import read_json_object

__all__ = ["architecture_of", "checkpoint_names", "is_native", "read_config"]

_MAX_POSITIONS = 1 << 15  # released models have 512 or 1024

# Names of activations in configs; some have several.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

# Limits of sizes in a config, some ten times those of published models.
_MAX_LAYERS, _MAX_POSITIONS, _MAX_WIDTH, _MAX_VOCABULARY = 1000, 1 << 17, 1 << 17, 1 << 22
_MAX_TABLE = 1 << 28  # numbers in a table of positions

# Samples of the longest sound that enters as a waveform; Moonshine was trained with up to 30 s.
_MAX_WAVEFORM = 64 * 16_000


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder.

    Raises:
        CheckpointError: it is missing, unreadable, or not a JSON object.
    """
    path = folder / "config.json"
    try:
        return read_json_object(path)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a model folder: it has no config.json") from None


def is_native(folder: Path) -> bool:
    """Whether the native model runs the model of a folder. Raises CheckpointError."""
    config = read_config(folder)
    family = str(config.get("model_type"))
    return family in _BUILDERS and (family != "moonshine" or _has_plain_heads(config))


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
            f"{where}: model_type {_shorten(repr(family))} is not supported; this engine runs "
            f"{', '.join(family for family in _BUILDERS if family != 'opennmt')}, and through "
            "transformers the classes of it that generate, by `architectures` of config.json"
        )
    try:
        return build(config)
    except KeyError as error:
        raise CheckpointError(f"{where}: config.json lacks {error.args[0]!r}") from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise CheckpointError(f"{where}: config.json is invalid: {error}") from error


def _count(config: Mapping[str, Any], key: str, largest: int, default: int | None = None) -> int:
    """A size in a config, from 1 to `largest`: what it describes is allocated or looped over."""
    value = config[key] if default is None else config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{key} {_shorten(value)} is not a whole number")
    if not 1 <= value <= largest:
        raise ValueError(f"{key} {_shorten(value)} is not between 1 and {largest:,}")
    return int(value)


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _positions(config: Mapping[str, Any]) -> int:
    """The longest input. It is bounded: no tensor of the checkpoint confirms it where positions
    are computed, and a table of any size would be."""
    positions = int(config["max_position_embeddings"])
    if not 0 < positions <= _MAX_POSITIONS:
        raise ValueError(f"max_position_embeddings is not between 1 and {_MAX_POSITIONS}")
    return positions


def _eos(config: Mapping[str, Any]) -> tuple[int, ...]:
    eos = config["eos_token_id"]
    return tuple(int(i) for i in eos) if isinstance(eos, list) else (int(eos),)


# The stacks of BART and its relatives, as far as they differ in more than sizes.
_VARIANTS: dict[str, dict[str, Any]] = {
    "whisper": {"positions": "table", "norm_first": True, "final_norm": True},
    # Older Marian checkpoints store these positions (in fp16), recent ones leave them out.
    "marian": {"positions": "sinusoidal", "norm_first": False, "final_norm": False},
    "bart": {
        "positions": "table", "position_offset": 2, "norm_first": False, "final_norm": False,
        "embedding_norm": True,
    },
    "mbart": {
        "positions": "table", "position_offset": 2, "norm_first": True, "final_norm": True,
        "embedding_norm": True,
    },
    # OpenNMT's, as CTranslate2 has them: positions interleave sines and cosines.
    "opennmt": {"positions": "table", "norm_first": True, "final_norm": True},
    "m2m_100": {
        "positions": "fairseq", "position_offset": 2, "norm_first": True, "final_norm": True,
    },
}  # fmt: skip


def _stack(config: Mapping[str, Any], family: str, side: str, max_positions: int) -> Stack:
    """A stack of BART or a relative. side: "encoder" or "decoder", the prefix of the keys."""
    d_model = _count(config, "d_model", _MAX_WIDTH)
    heads = _count(config, f"{side}_attention_heads", d_model)
    if d_model % heads:
        raise ValueError(f"d_model {d_model} does not divide into {heads} heads")
    if max_positions * d_model > _MAX_TABLE:
        raise ValueError(f"{max_positions} positions of width {d_model} are too many")
    activation = str(config.get("activation_function", "gelu"))
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"activation_function {_shorten(activation)!r} is not one of {sorted(_ACTIVATIONS)}"
        )
    variant = dict(_VARIANTS[family])
    if family == "opennmt":
        variant["norm_first"] = variant["final_norm"] = bool(config.get("normalize_before", True))
    return Stack(
        layers=_count(config, f"{side}_layers", _MAX_LAYERS),
        heads=heads,
        head_dim=d_model // heads,
        d_model=d_model,
        ffn_dim=_count(config, f"{side}_ffn_dim", _MAX_WIDTH),
        max_positions=max_positions,
        activation=_ACTIVATIONS[activation],
        embedding_scale=d_model**0.5 if config.get("scale_embedding") else 1.0,
        **{"position_offset": 0, "embedding_norm": False} | variant,
    )


def _bart(config: Mapping[str, Any]) -> Architecture:
    """BART and its relatives: Whisper, Marian, mBART, M2M100 and NLLB."""
    family = str(config["model_type"])
    audio, marian = family == "whisper", family == "marian"
    for key in ("normalize_before", "normalize_embedding"):
        if marian and config.get(key):
            raise ValueError(f"{key} is set, which no released Marian model uses")
    source_positions, target_positions = (
        _count(config, key if audio else "max_position_embeddings", _MAX_POSITIONS)
        for key in ("max_source_positions", "max_target_positions")
    )
    vocab = _count(config, "vocab_size", _MAX_VOCABULARY)
    pair = family in ("marian", "opennmt")
    shared = not pair or bool(config.get("share_encoder_decoder_embeddings", True))
    start = config.get("decoder_start_token_id")
    if start is None and (audio or pair):
        raise KeyError("decoder_start_token_id")
    return Architecture(
        family=family,
        source="audio" if audio else "tokens",
        encoder=_stack(config, family, "encoder", source_positions),
        decoder=_stack(config, family, "decoder", target_positions),
        vocab_size=vocab
        if shared
        else _count(config, "decoder_vocab_size", _MAX_VOCABULARY, vocab),
        source_vocab_size=0 if audio else vocab,
        num_mel_bins=_count(config, "num_mel_bins", _MAX_WIDTH) if audio else 0,
        start_id=int(config["eos_token_id"] if start is None else start),
        eos_ids=_eos(config),
        pad_id=int(config["pad_token_id"]),
        separate_embeddings=not shared,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _t5(config: Mapping[str, Any]) -> Architecture:
    block = str(config.get("feed_forward_proj", "relu"))
    gated, name = block.startswith("gated-"), block.removeprefix("gated-")
    # "gated-gelu" has always meant the approximation that the first T5 code used.
    activation = "gelu_new" if gated and name == "gelu" else name
    if activation not in _ACTIVATIONS:
        raise ValueError(f"feed_forward_proj {block!r} is not supported")
    width = _count(config, "d_model", _MAX_WIDTH)
    # Recent configs have the first key; in older ones a tied head implies scaling.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))

    # Some files have null for the default.
    positions = _count(config, "n_positions", _MAX_POSITIONS) if config.get("n_positions") else 512

    def side(layers: int, bidirectional: bool) -> Stack:
        return Stack(
            layers=layers,
            heads=_count(config, "num_heads", _MAX_WIDTH),
            head_dim=_count(config, "d_kv", _MAX_WIDTH),
            d_model=width,
            ffn_dim=int(config["d_ff"]),
            # Relative positions have no limit; the cache gets room for the length of training.
            max_positions=max(512, positions),
            activation=_ACTIVATIONS[activation],
            positions="relative",
            position_offset=0,
            embedding_scale=1.0,
            norm_first=True,
            final_norm=True,
            embedding_norm=False,
            relative=RelativePositions(
                _count(config, "relative_attention_num_buckets", _MAX_POSITIONS, 32),
                _count(config, "relative_attention_max_distance", _MAX_POSITIONS, 128),
                bidirectional,
            ),
            rms=True,
            norm_eps=float(config.get("layer_norm_epsilon", 1e-6)),
            gated=gated,
            scaled=False,
        )

    layers = _count(config, "num_layers", _MAX_LAYERS)
    decoder_layers = layers
    if config.get("num_decoder_layers"):
        decoder_layers = _count(config, "num_decoder_layers", _MAX_LAYERS)
    vocab, pad = _count(config, "vocab_size", _MAX_VOCABULARY), int(config["pad_token_id"])
    return Architecture(
        family="t5",
        source="tokens",
        encoder=side(layers, bidirectional=True),
        decoder=side(decoder_layers, bidirectional=False),
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


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of rotary positions: an object of their own in recent configs."""
    own = config.get("rope_parameters") or config.get("rope_scaling")
    return {**config, **own} if isinstance(own, Mapping) else config


def _has_plain_heads(config: Mapping[str, Any]) -> bool:
    """Whether a Moonshine model is of the published kind: each query head has keys of its own,
    both sides have the same heads, and rotary positions are not stretched."""
    heads, sides = config.get("decoder_num_attention_heads", 8), ("encoder", "decoder")
    same = ("encoder_num_attention_heads", *(f"{s}_num_key_value_heads" for s in sides))
    kind = _rope(config).get("rope_type", _rope(config).get("type", "default"))
    return kind == "default" and all(config.get(key) in (None, heads) for key in same)


def _moonshine(config: Mapping[str, Any]) -> Architecture:
    width = _count(config, "hidden_size", _MAX_WIDTH, 288)
    rope = _rope(config)

    def side(name: str, activation: str, positions: int, gated: bool) -> Stack:
        heads = _count(config, f"{name}_num_attention_heads", width, 8)
        if width % heads:
            raise ValueError(f"hidden_size {width} does not divide into {heads} heads")
        dims = int(width // heads * float(rope.get("partial_rotary_factor", 0.9)))
        if not 0 < dims <= width // heads // 2 * 2:
            raise ValueError(f"{dims} of {width // heads} dimensions of a head cannot be rotated")
        activation = str(config.get(f"{name}_hidden_act", activation))
        if activation not in _ACTIVATIONS:
            raise ValueError(f"{name}_hidden_act {_shorten(activation)!r} is not supported")
        return Stack(
            layers=_count(config, f"{name}_num_hidden_layers", _MAX_LAYERS, 6),
            heads=heads,
            head_dim=width // heads,
            d_model=width,
            ffn_dim=_count(config, "intermediate_size", _MAX_WIDTH, 1152),
            max_positions=positions,
            activation=_ACTIVATIONS[activation],
            positions="rotary",
            position_offset=0,
            embedding_scale=1.0,
            norm_first=True,
            final_norm=True,
            embedding_norm=False,
            rotary=RotaryPositions(dims, float(rope.get("rope_theta", 10_000.0))),
            norm_bias=False,
            gated=gated,
            gate_last=gated,
        )

    target_positions = _count(config, "max_position_embeddings", _MAX_POSITIONS, 512)
    eos = config.get("eos_token_id", 2)
    pad = config.get("pad_token_id")
    return Architecture(
        family="moonshine",
        source="waveform",
        encoder=side("encoder", "gelu", waveform_positions(_MAX_WAVEFORM), gated=False),
        decoder=side("decoder", "silu", target_positions, gated=True),
        vocab_size=_count(config, "vocab_size", _MAX_VOCABULARY, 32_768),
        source_vocab_size=0,
        num_mel_bins=0,
        start_id=int(config.get("decoder_start_token_id", 1)),
        eos_ids=_eos({"eos_token_id": eos}),
        pad_id=int(_eos({"eos_token_id": eos})[0] if pad is None else pad),
        separate_embeddings=False,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Architecture]] = {
    **dict.fromkeys(_VARIANTS, _bart),
    "t5": _t5,
    "moonshine": _moonshine,
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

# Native name → Moonshine's, where they differ: blocks of a layer.
_MOONSHINE_BLOCK = {
    "self_attn_layer_norm": "input_layernorm",
    "encoder_attn_layer_norm": "post_attention_layernorm",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}


def checkpoint_names(family: str) -> Callable[[str], str]:
    """A function from the native model's name of a tensor to the checkpoint's.

    The native model uses the names of BART, Marian and M2M100 checkpoints in transformers.
    """
    return {"t5": _t5_name, "moonshine": _moonshine_name}.get(family, str)


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


def _moonshine_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match is None:
        return name.replace("model.decoder.layer_norm.", "model.decoder.norm.")
    side, index, block, kind = match.groups()
    if block == "final_layer_norm":
        inside = "post_attention_layernorm" if side == "encoder" else "final_layernorm"
    else:
        inside = _MOONSHINE_BLOCK.get(block, block.replace("out_proj", "o_proj"))
    return f"model.{side}.layers.{index}.{inside}.{kind}"
