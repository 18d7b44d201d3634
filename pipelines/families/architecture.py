"""The architecture of a model as data: the differences between the families of encoder-decoders."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Literal

from pipelines.errors import CheckpointError

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
Positions = Literal["table", "sinusoidal", "fairseq", "none"]

WAVEFORM_CONVOLUTIONS = ((127, 64), (7, 3), (3, 2))
"""Kernel and stride of each convolution that raw sound enters through, without padding."""


def waveform_positions(samples: int) -> int:
    """The number of encoder positions of so many samples of raw sound; below 1: too few."""
    for kernel, stride in WAVEFORM_CONVOLUTIONS:
        samples = (samples - kernel) // stride + 1
    return samples


@dataclass(frozen=True)
class RelativePositions:
    """Relative positions (Raffel et al. 2020): a bias per attention head and bucket of distances.

    Attributes:
        buckets: number of buckets.
        max_distance: distances from here on share the last bucket.
        bidirectional: keys may lie before and after the query (encoders).
    """

    buckets: int
    max_distance: int
    bidirectional: bool


@dataclass(frozen=True)
class RotaryPositions:
    """Rotary positions (Su et al. 2021): queries and keys are rotated by angles that grow with
    the position, neighboring pairs of dimensions at the same rate.

    Attributes:
        dims: dimensions of a head that are rotated, the first ones; of an odd number one more.
        theta: the lowest rate is about 1 / theta.
    """

    dims: int
    theta: float


@dataclass(frozen=True)
class BlockSpec:
    """A block of each layer of a stack, as data; `pipelines.engine.model.blocks` computes it.

    What a block computes is added to the states, with a norm before it, or after the sum. A new
    kind is a subclass, whose fields say what differs between models. A field that not every
    implementation knows needs a default, which changes nothing.
    """


def changed_fields(part: Any, known: Collection[str]) -> list[str]:
    """Return the fields of a part's data, except the known ones, whose value is not the default."""
    return [
        field.name
        for field in fields(part)
        if field.name not in known and getattr(part, field.name) != field.default
    ]


@dataclass(frozen=True)
class SelfAttentionSpec(BlockSpec):
    """Self-attention, with as many heads as the stack has.

    Attributes:
        positions: Relative positions are added to the attention scores; rotary ones rotate
            queries and keys. None if attention knows no positions.
        scaled: Attention scores are divided by the square root of head_dim.
    """

    positions: RelativePositions | RotaryPositions | None = None
    scaled: bool = True


@dataclass(frozen=True)
class CrossAttentionSpec(BlockSpec):
    """Attention of a decoder on the encoded source.

    Attributes:
        scaled: As SelfAttentionSpec.scaled.
    """

    scaled: bool = True


@dataclass(frozen=True)
class FeedForwardSpec(BlockSpec):
    """Two linear layers with an activation between them.

    Attributes:
        width: Of the inner layer.
        gated: The inner layer multiplies an activated and a linear half (Shazeer 2020).
        gate_last: Both halves are one matrix of the checkpoint, the activated one second.
    """

    width: int
    activation: Activation
    gated: bool = False
    gate_last: bool = False


@dataclass(frozen=True)
class Norm:
    """The norms of a stack.

    Attributes:
        first: A norm before each block (pre-norm) instead of after each residual sum (post-norm,
            as in Marian).
        eps: Constant in the norms' denominator.
        bias: Whether layer norms have a bias.
        rms: Norms without mean and bias (Zhang & Sennrich 2019).
    """

    first: bool
    eps: float = 1e-5  # torch's default, which all families but T5 were trained with
    bias: bool = True
    rms: bool = False


@dataclass(frozen=True)
class Stack:
    """One side of the model, encoder or decoder: its sizes and the blocks of its layers.

    Attributes:
        head_dim: Width of an attention head; heads × head_dim may differ from d_model (T5).
        d_model: Width of the hidden states.
        max_positions: Longest sequence.
        blocks: Of each layer, in order.
        norm: Of the blocks, and of the two norms below.
        positions: What is added to the embeddings. "table" reads position embeddings from the
            checkpoint; "sinusoidal" computes those that the checkpoint leaves out (first half sine,
            second half cosine, as in Marian); "fairseq" does so at other rates (M2M100); "none"
            adds nothing.
        final_norm: One more norm after the last layer.
        position_offset: Entries of the position table before position 0 (2 in BART).
        embedding_scale: Factor on the token embeddings.
        embedding_norm: A norm on the embeddings (BART, mBART).
    """

    layers: int
    heads: int
    head_dim: int
    d_model: int
    max_positions: int
    blocks: tuple[BlockSpec, ...]
    norm: Norm
    positions: Positions
    final_norm: bool = False
    position_offset: int = 0
    embedding_scale: float = 1.0
    embedding_norm: bool = False

    @property
    def attention_positions(self) -> RelativePositions | RotaryPositions | None:
        """The positions of self-attention, the same in all layers.

        Raises:
            CheckpointError: Blocks differ in them.
        """
        found = {block.positions for block in self.blocks if isinstance(block, SelfAttentionSpec)}
        if len(found) > 1:
            raise CheckpointError(
                "the self-attention blocks of a layer have different positions; all need the same"
            )
        return next(iter(found), None)

    @property
    def attention_dim(self) -> int:
        """Width of all attention heads together: heads × head_dim."""
        return self.heads * self.head_dim


@dataclass(frozen=True)
class Architecture:
    """An encoder-decoder model.

    Attributes:
        family: the config's model_type; "other" for a wrapped transformers module.
        source: input of the encoder. "audio": log-mel frames, through two convolutions that halve
            their number; "waveform": raw sound at 16 kHz, through three convolutions; "tokens":
            token ids; "other": whatever the encoder of a wrapped module takes; "none": there is no
            encoder (decoder-only models).
        num_mel_bins: mel bands of an audio source, else 0.
        start_id: first token of the decoder.
        eos_ids: tokens that end a sequence.
        pad_id: padding; never generated.
        separate_embeddings: encoder and decoder have vocabularies of their own.
        tied_head: the LM head is the decoder's token embedding. None: only if the checkpoint has
            no head.
        head_scale: factor on the last hidden states before the LM head.
    """

    family: str
    source: Literal["audio", "waveform", "tokens", "other", "none"]
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
        """Width of the decoder's hidden states."""
        return self.decoder.d_model

    @property
    def encoder_layers(self) -> int:
        return self.encoder.layers

    @property
    def decoder_layers(self) -> int:
        return self.decoder.layers

    @property
    def decoder_heads(self) -> int:
        """Attention heads of a decoder layer."""
        return self.decoder.heads

    @property
    def max_source_positions(self) -> int:
        return self.encoder.max_positions

    @property
    def max_target_positions(self) -> int:
        return self.decoder.max_positions
