"""What a model is made of, as data: the same few differences for every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Activation", "Architecture", "Family", "Positions", "RelativePositions", "Stack"]

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
Family = Literal["whisper", "marian", "bart", "mbart", "m2m_100", "t5", "other"]
Positions = Literal["table", "sinusoidal", "fairseq", "relative"]


@dataclass(frozen=True)
class RelativePositions:
    """Relative positions (Raffel et al. 2020): a bias per head for each bucket of distances, of
    which those from max_distance on share one. bidirectional: keys may lie on either side."""

    buckets: int
    max_distance: int
    bidirectional: bool


@dataclass(frozen=True)
class Stack:
    """One side of the model (encoder or decoder): everything that its layers need to know.

    head_dim: width of an attention head; heads × head_dim may differ from d_model (T5).
    positions: "table" reads them from the checkpoint; "sinusoidal" computes them where the
        checkpoint leaves them out (first half sine, second half cosine, as in Marian); "fairseq"
        the same at other rates (M2M100); "relative" adds `relative` to the scores instead.
    position_offset: rows of the position table before position 0 (2 in BART).
    norm_first: layer norm before each block and once at the end (Whisper), or after each
        residual sum (Marian).
    final_norm: one at the end of the stack.
    embedding_norm: a layer norm on the embeddings (BART, mBART).
    rms: norms without mean and bias (Zhang & Sennrich 2019). norm_eps: in their denominator.
    gated: the feed-forward block multiplies an activated and a linear half (Shazeer 2020).
    scaled: attention scores are divided by the root of head_dim.
    """

    layers: int
    heads: int
    head_dim: int
    d_model: int
    ffn: int
    max_positions: int
    activation: Activation
    positions: Positions
    position_offset: int
    embedding_scale: float
    norm_first: bool
    final_norm: bool
    embedding_norm: bool
    relative: RelativePositions | None = None
    rms: bool = False
    norm_eps: float = 1e-5  # torch's default, which all but T5 were trained with
    gated: bool = False
    scaled: bool = True

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True)
class Architecture:
    """An encoder-decoder model in full.

    family: as in config.json's model_type; "other" is a transformers module in the adapter.
    source: "audio" (log-mel frames through two convolutions, halving their number), "tokens",
        "other" (what a module's own encoder takes) or "none" (decoder-only).
    num_mel_bins: 0 for token sources.
    start_id: what the decoder starts from; eos_ids: what ends it; pad_id: never generated.
    separate_embeddings: encoder and decoder have vocabularies of their own.
    tied_head: the head is the embedding; None: unless the weights have one.
    head_scale: what the last hidden states are multiplied with before the head.
    """

    family: Family
    source: Literal["audio", "tokens", "other", "none"]
    encoder: Stack
    decoder: Stack
    vocab_size: int
    source_vocab_size: int
    num_mel_bins: int
    start_id: int
    eos_ids: tuple[int, ...]
    pad_id: int
    separate_embeddings: bool
    tied_head: bool | None
    head_scale: float = 1.0

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
