"""BART, and what its relatives share: Whisper, Marian, OpenNMT, mBART, M2M100, NLLB, Pegasus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pipelines.families.architecture import (
    Architecture,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    Positions,
    SelfAttentionSpec,
    Stack,
)
from pipelines.families.config import (
    ACTIVATIONS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_TABLE,
    MAX_VOCABULARY,
    MAX_WIDTH,
    count,
    eos_ids,
    shorten,
)
from pipelines.families.family import Family


@dataclass(frozen=True)
class Layers:
    """How the stacks of BART's relatives differ in more than sizes. The fields are Stack's, and
    `norm_first` is Norm.first."""

    positions: Positions = "table"
    position_offset: int = 0
    norm_first: bool = True
    final_norm: bool = True
    embedding_norm: bool = False


def bart_architecture(
    config: Mapping[str, Any],
    layers: Layers,
    *,
    source: Literal["tokens", "audio"] = "tokens",
    is_pair: bool = False,
) -> Architecture:
    """Return the architecture of a model of BART's relatives.

    Args:
        config: The model's config.json.
        layers: How the layers of the model's family are built.
        source: What the encoder reads, as Architecture.source.
        is_pair: Whether the model translates one pair of languages, whose vocabularies may differ.
    """
    audio = source == "audio"
    source_positions, target_positions = (
        count(config, key if audio else "max_position_embeddings", MAX_POSITIONS)
        for key in ("max_source_positions", "max_target_positions")
    )
    vocab = count(config, "vocab_size", MAX_VOCABULARY)
    shared = not is_pair or bool(config.get("share_encoder_decoder_embeddings", True))
    start = config.get("decoder_start_token_id")
    if start is None and (audio or is_pair):
        raise KeyError("decoder_start_token_id")
    return Architecture(
        family=str(config["model_type"]),
        source=source,
        encoder=_stack(config, layers, "encoder", source_positions),
        decoder=_stack(config, layers, "decoder", target_positions),
        vocab_size=vocab if shared else count(config, "decoder_vocab_size", MAX_VOCABULARY, vocab),
        source_vocab_size=0 if audio else vocab,
        num_mel_bins=count(config, "num_mel_bins", MAX_WIDTH) if audio else 0,
        start_id=int(config["eos_token_id"] if start is None else start),
        eos_ids=eos_ids(config["eos_token_id"]),
        pad_id=int(config["pad_token_id"]),
        separate_embeddings=not shared,
        tied_head=bool(config.get("tie_word_embeddings", True)),
    )


def _stack(config: Mapping[str, Any], layers: Layers, side: str, max_positions: int) -> Stack:
    """Return a stack. side: "encoder" or "decoder", the prefix of the keys."""
    d_model = count(config, "d_model", MAX_WIDTH)
    heads = count(config, f"{side}_attention_heads", d_model)
    if d_model % heads:
        raise ValueError(f"d_model {d_model} does not divide into {heads} heads")
    if max_positions * d_model > MAX_TABLE:
        raise ValueError(f"{max_positions} positions of width {d_model} are too many")
    activation = str(config.get("activation_function", "gelu"))
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation_function {shorten(activation)!r} is not one of {sorted(ACTIVATIONS)}"
        )
    feed_forward = FeedForwardSpec(
        count(config, f"{side}_ffn_dim", MAX_WIDTH), ACTIVATIONS[activation]
    )
    cross = (CrossAttentionSpec(),) if side == "decoder" else ()
    return Stack(
        layers=count(config, f"{side}_layers", MAX_LAYERS),
        heads=heads,
        head_dim=d_model // heads,
        d_model=d_model,
        max_positions=max_positions,
        blocks=(SelfAttentionSpec(), *cross, feed_forward),
        norm=Norm(first=layers.norm_first),
        positions=layers.positions,
        position_offset=layers.position_offset,
        embedding_scale=d_model**0.5 if config.get("scale_embedding") else 1.0,
        final_norm=layers.final_norm,
        embedding_norm=layers.embedding_norm,
    )


BART = Family(
    "bart",
    "translation",
    files=(("tokenizer.json", "vocab.json"), ("tokenizer.json", "merges.txt")),
    whole_lines=True,
    architecture=partial(
        bart_architecture,
        layers=Layers(position_offset=2, norm_first=False, final_norm=False, embedding_norm=True),
    ),
)
