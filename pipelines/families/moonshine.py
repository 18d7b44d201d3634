"""Moonshine, which reads raw sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.families.architecture import (
    Architecture,
    BlockSpec,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    RotaryPositions,
    SelfAttentionSpec,
    Stack,
    waveform_positions,
)
from pipelines.families.config import (
    ACTIVATIONS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    count,
    eos_ids,
    shorten,
)
from pipelines.families.family import LAYER_TENSOR, Family

# Samples of the longest sound that enters as a waveform; Moonshine was trained with up to 30 s.
_MAX_WAVEFORM = 64 * 16_000

# Native name → Moonshine's, where they differ: blocks of a layer.
_BLOCK = {
    "self_attn_layer_norm": "input_layernorm",
    "encoder_attn_layer_norm": "post_attention_layernorm",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of rotary positions: an object of their own in recent configs."""
    own = config.get("rope_parameters") or config.get("rope_scaling")
    return {**config, **own} if isinstance(own, Mapping) else config


def _has_plain_heads(config: Mapping[str, Any]) -> bool:
    """Return whether a model is of the published kind: each query head has keys of its own,
    both sides have the same heads, and rotary positions are not stretched."""
    heads, sides = config.get("decoder_num_attention_heads", 8), ("encoder", "decoder")
    same = ("encoder_num_attention_heads", *(f"{s}_num_key_value_heads" for s in sides))
    kind = _rope(config).get("rope_type", _rope(config).get("type", "default"))
    return kind == "default" and all(config.get(key) in (None, heads) for key in same)


def _architecture(config: Mapping[str, Any]) -> Architecture:
    width = count(config, "hidden_size", MAX_WIDTH, 288)
    rope = _rope(config)

    def side(name: str, activation: str, positions: int, *cross: BlockSpec) -> Stack:
        heads = count(config, f"{name}_num_attention_heads", width, 8)
        if width % heads:
            raise ValueError(f"hidden_size {width} does not divide into {heads} heads")
        dims = int(width // heads * float(rope.get("partial_rotary_factor", 0.9)))
        if not 0 < dims <= width // heads // 2 * 2:
            raise ValueError(f"{dims} of {width // heads} dimensions of a head cannot be rotated")
        activation = str(config.get(f"{name}_hidden_act", activation))
        if activation not in ACTIVATIONS:
            raise ValueError(f"{name}_hidden_act {shorten(activation)!r} is not supported")
        feed_forward = FeedForwardSpec(
            count(config, "intermediate_size", MAX_WIDTH, 1152),
            ACTIVATIONS[activation],
            gated=bool(cross),
            gate_last=bool(cross),
        )
        rotary = RotaryPositions(dims, float(rope.get("rope_theta", 10_000.0)))
        return Stack(
            layers=count(config, f"{name}_num_hidden_layers", MAX_LAYERS, 6),
            heads=heads,
            head_dim=width // heads,
            d_model=width,
            max_positions=positions,
            blocks=(SelfAttentionSpec(rotary), *cross, feed_forward),
            norm=Norm(first=True, bias=False),
            positions="none",
            final_norm=True,
        )

    target_positions = count(config, "max_position_embeddings", MAX_POSITIONS, 512)
    eos = eos_ids(config.get("eos_token_id", 2))
    pad = config.get("pad_token_id")
    return Architecture(
        family="moonshine",
        source="waveform",
        encoder=side("encoder", "gelu", waveform_positions(_MAX_WAVEFORM)),
        decoder=side("decoder", "silu", target_positions, CrossAttentionSpec()),
        vocab_size=count(config, "vocab_size", MAX_VOCABULARY, 32_768),
        source_vocab_size=0,
        num_mel_bins=0,
        start_id=int(config.get("decoder_start_token_id", 1)),
        eos_ids=eos,
        pad_id=int(eos[0] if pad is None else pad),
        separate_embeddings=False,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _tensor_name(name: str) -> str:
    match = LAYER_TENSOR.fullmatch(name)
    if match is None:
        return name.replace("model.decoder.layer_norm.", "model.decoder.norm.")
    side, index, block, kind = match.groups()
    if block == "final_layer_norm":
        inside = "post_attention_layernorm" if side == "encoder" else "final_layernorm"
    else:
        inside = _BLOCK.get(block, block.replace("out_proj", "o_proj"))
    return f"model.{side}.layers.{index}.{inside}.{kind}"


MOONSHINE = Family(
    "moonshine",
    "asr",
    files=(("tokenizer.json",),),
    architecture=_architecture,
    tensor_name=_tensor_name,
    native_variant=_has_plain_heads,
)
