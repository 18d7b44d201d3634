"""Model families as data: what a Hugging Face config says, in the terms of the one native stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import CheckpointError

__all__ = ["Activation", "Architecture", "Stack", "architecture_of", "read_config"]

Activation = Literal["gelu", "relu", "silu"]
Positions = Literal["table", "sinusoidal"]

# Marian and Whisper configs spell some activations in their own way.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Stack:
    """One side of the model (encoder or decoder): everything that its layers need to know.

    positions: "table" reads them from the checkpoint; "sinusoidal" computes them where the
        checkpoint leaves them out (first half sine, second half cosine, as in Marian).
    position_offset: rows of the position table before position 0 (2 in BART).
    norm_first: layer norm before each block and once at the end (Whisper), or after each
        residual sum (Marian).
    embedding_norm: a layer norm on the embeddings (BART, mBART).
    """

    layers: int
    heads: int
    d_model: int
    ffn: int
    max_positions: int
    activation: Activation
    positions: Positions
    position_offset: int
    embedding_scale: float
    norm_first: bool
    embedding_norm: bool

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads


@dataclass(frozen=True)
class Architecture:
    """An encoder-decoder model in full.

    source: "audio" (log-mel frames through two convolutions, halving their number) or "tokens".
    num_mel_bins: 0 for token sources.
    start_id: what the decoder starts from; eos_ids: what ends it; pad_id: never generated.
    separate_embeddings: encoder and decoder have vocabularies of their own.
    """

    family: Literal["whisper", "marian"]
    source: Literal["audio", "tokens"]
    encoder: Stack
    decoder: Stack
    vocab_size: int
    source_vocab_size: int
    num_mel_bins: int
    start_id: int
    eos_ids: tuple[int, ...]
    pad_id: int
    separate_embeddings: bool
    tied_head: bool

    @property
    def d_model(self) -> int:
        return self.decoder.d_model

    @property
    def encoder_layers(self) -> int:
        return self.encoder.layers

    @property
    def decoder_layers(self) -> int:
        return self.decoder.layers

    @property
    def decoder_heads(self) -> int:
        return self.decoder.heads

    @property
    def max_source_positions(self) -> int:
        return self.encoder.max_positions

    @property
    def max_target_positions(self) -> int:
        return self.decoder.max_positions


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises CheckpointError when it is missing or not JSON."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is no model folder: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return config


def architecture_of(config: Mapping[str, Any], where: str) -> Architecture:
    """The architecture that a config.json describes; `where` names it in errors.

    Raises CheckpointError for a family this engine does not know, or values that are
    missing or impossible.
    """
    family = config.get("model_type")
    build = {"whisper": _whisper, "marian": _marian}.get(str(family))
    if build is None:
        raise CheckpointError(
            f"{where}: model_type {family!r} is not supported; this engine runs whisper and marian"
        )
    try:
        return build(config)
    except KeyError as error:
        raise CheckpointError(f"{where}: config.json lacks {error.args[0]!r}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{where}: config.json makes no sense: {error}") from error


def _stack(config: Mapping[str, Any], side: str, **differences: Any) -> Stack:
    """The keys that every family of this tree shares."""
    d_model, heads = int(config["d_model"]), int(config[f"{side}_attention_heads"])
    if d_model % heads:
        raise ValueError(f"d_model {d_model} does not divide into {heads} heads")
    activation = str(config.get("activation_function", "gelu"))
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation_function {activation!r} is not one of {sorted(_ACTIVATIONS)}")
    return Stack(
        layers=int(config[f"{side}_layers"]),
        heads=heads,
        d_model=d_model,
        ffn=int(config[f"{side}_ffn_dim"]),
        activation=_ACTIVATIONS[activation],
        position_offset=0,
        embedding_scale=d_model**0.5 if config.get("scale_embedding") else 1.0,
        **differences,
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
            # Fixed by formula; older checkpoints store them (in fp16), recent ones do not.
            positions="sinusoidal",
            norm_first=False,
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
