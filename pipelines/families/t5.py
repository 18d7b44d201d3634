"""T5, Flan-T5 and MADLAD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.families.architecture import (
    Architecture,
    BlockSpec,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    RelativePositions,
    SelfAttentionSpec,
    Stack,
)
from pipelines.families.config import (
    ACTIVATIONS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    count,
    eos_ids,
)
from pipelines.families.family import LAYER_TENSOR, Family

# Native name → T5's: outside the layers, blocks of a layer, projections of attention.
_OUTSIDE = {
    "shared": "shared",
    "encoder.layer_norm": "encoder.final_layer_norm",
    "decoder.layer_norm": "decoder.final_layer_norm",
    "encoder.relative_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "decoder.relative_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
}
_BLOCK = {
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
_PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}


def t5_architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a model of T5 or a relative."""
    block = str(config.get("feed_forward_proj", "relu"))
    gated, name = block.startswith("gated-"), block.removeprefix("gated-")
    # "gated-gelu" has always meant the approximation that the first T5 code used.
    activation = "gelu_new" if gated and name == "gelu" else name
    if activation not in ACTIVATIONS:
        raise ValueError(f"feed_forward_proj {block!r} is not supported")
    width = count(config, "d_model", MAX_WIDTH)
    # Recent configs have the first key; in older ones a tied head implies scaling.
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))

    # Some files have null for the default.
    positions = count(config, "n_positions", MAX_POSITIONS) if config.get("n_positions") else 512

    norm = Norm(first=True, eps=float(config.get("layer_norm_epsilon", 1e-6)), rms=True)
    feed_forward = FeedForwardSpec(int(config["d_ff"]), ACTIVATIONS[activation], gated)

    def self_attention(bidirectional: bool) -> SelfAttentionSpec:
        buckets = count(config, "relative_attention_num_buckets", MAX_POSITIONS, 32)
        distance = count(config, "relative_attention_max_distance", MAX_POSITIONS, 128)
        return SelfAttentionSpec(RelativePositions(buckets, distance, bidirectional), scaled=False)

    def side(layers: int, *blocks: BlockSpec) -> Stack:
        return Stack(
            layers=layers,
            heads=count(config, "num_heads", MAX_WIDTH),
            head_dim=count(config, "d_kv", MAX_WIDTH),
            d_model=width,
            # Relative positions have no limit; the cache gets room for the length of training.
            max_positions=max(512, positions),
            blocks=blocks,
            norm=norm,
            positions="none",
            final_norm=True,
        )

    start = config.get("decoder_start_token_id")
    layers = count(config, "num_layers", MAX_LAYERS)
    decoder_layers = layers
    if config.get("num_decoder_layers"):
        decoder_layers = count(config, "num_decoder_layers", MAX_LAYERS)
    vocab, pad = count(config, "vocab_size", MAX_VOCABULARY), int(config["pad_token_id"])
    return Architecture(
        family=str(config["model_type"]),
        source="tokens",
        encoder=side(layers, self_attention(True), feed_forward),
        decoder=side(
            decoder_layers, self_attention(False), CrossAttentionSpec(scaled=False), feed_forward
        ),
        vocab_size=vocab,
        source_vocab_size=vocab,
        num_mel_bins=0,
        start_id=pad if start is None else int(start),
        eos_ids=eos_ids(config["eos_token_id"]),
        pad_id=pad,
        separate_embeddings=False,
        tied_head=None,
        head_scale=width**-0.5 if scaled else 1.0,
    )


def _tensor_name(name: str) -> str:
    match = LAYER_TENSOR.fullmatch(name)
    if match is None:
        bare, _, kind = name.removeprefix("model.").rpartition(".")
        return f"{_OUTSIDE.get(bare, bare)}.{kind}"
    side, index, block, kind = match.groups()
    part, _, projection = block.partition(".")
    inside = _BLOCK[part].format(last=1 if side == "encoder" else 2)
    end = f".{_PROJECTIONS[projection]}" if projection else ""
    return f"{side}.block.{index}.{inside}{end}.{kind}"


T5 = Family(
    "t5",
    "translation",
    files=(("spiece.model", "tokenizer.json"),),
    tokenizer="t5",
    architecture=t5_architecture,
    tensor_name=_tensor_name,
)
