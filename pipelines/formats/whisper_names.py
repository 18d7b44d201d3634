"""openai-whisper's names of tensors, which whisper.cpp has too, as transformers' names."""

from __future__ import annotations

_PARTS = (  # replaced in this order
    (".blocks.", ".layers."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
    (".mlp_ln.", ".final_layer_norm."),
    (".mlp.0.", ".fc1."),
    (".mlp.2.", ".fc2."),
    (".cross_attn_ln.", ".encoder_attn_layer_norm."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".cross_attn.", ".encoder_attn."),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    (".token_embedding.", ".embed_tokens."),
    (".positional_embedding", ".embed_positions.weight"),
)


def transformers_name(name: str) -> str:
    """encoder.blocks.0.mlp.0.weight → model.encoder.layers.0.fc1.weight; names of transformers
    are returned as they are."""
    if name.startswith("model."):
        return name
    for theirs, ours in _PARTS:
        name = name.replace(theirs, ours)
    return f"model.{name}"
