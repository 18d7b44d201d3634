"""Weight names of transformers' Whisper → those of openai-whisper and whisper.cpp."""

from __future__ import annotations

__all__ = ["openai_name"]

_NAMES = (  # replaced in this order
    ("model.", ""),
    (".layers.", ".blocks."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn", "attn"),
    ("encoder_attn", "cross_attn"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("embed_positions.weight", "positional_embedding"),
    ("embed_tokens", "token_embedding"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
)


def openai_name(name: str) -> str:
    """model.encoder.layers.0.fc1.weight → encoder.blocks.0.mlp.0.weight"""
    for theirs, openai in _NAMES:
        name = name.replace(theirs, openai)
    return name
