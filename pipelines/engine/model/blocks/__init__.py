"""What the blocks of a layer compute, a file for each kind.

A new kind is a subclass of `families.architecture.Block` with its data, a file here with a `Block`
that computes it, and a line in ENCODER_BLOCKS or DECODER_BLOCKS. A kind that is not there is an
error when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.engine.model.blocks.attention import DecoderAttention, EncoderAttention
from pipelines.engine.model.blocks.base import Block, DecoderPass, EncoderPass
from pipelines.engine.model.blocks.cross_attention import CrossAttention
from pipelines.engine.model.blocks.feed_forward import FeedForward
from pipelines.engine.model.layers import LayerBuilder
from pipelines.errors import CheckpointError
from pipelines.families import architecture

__all__ = ["DECODER_BLOCKS", "ENCODER_BLOCKS", "decoder_blocks", "encoder_blocks"]

ENCODER_BLOCKS: Mapping[type[architecture.Block], Callable[..., Block[EncoderPass]]] = {
    architecture.SelfAttention: EncoderAttention,
    architecture.FeedForward: FeedForward,
}
DECODER_BLOCKS: Mapping[type[architecture.Block], Callable[..., Block[DecoderPass]]] = {
    architecture.SelfAttention: DecoderAttention,
    architecture.CrossAttention: CrossAttention,
    architecture.FeedForward: FeedForward,
}
"""The kind of a block → what makes one, from the builder of its layers, its data, the name of its
layer in the checkpoint, and the layer's number."""


def encoder_blocks(build: LayerBuilder) -> list[Block[EncoderPass]]:
    """Return the blocks of all layers of an encoder, in order.

    Raises:
        CheckpointError: An encoder has no blocks of a kind.
    """
    return _blocks(build, ENCODER_BLOCKS, "encoder")


def decoder_blocks(build: LayerBuilder) -> list[Block[DecoderPass]]:
    """Return the blocks of all layers of a decoder, in order; raises as `encoder_blocks`."""
    return _blocks(build, DECODER_BLOCKS, "decoder")


def _blocks(
    build: LayerBuilder, kinds: Mapping[type[architecture.Block], Callable[..., Any]], side: str
) -> list[Any]:
    blocks = []
    for layer in range(build.stack.layers):
        for block in build.stack.blocks:
            kind = kinds.get(type(block))
            if kind is None:
                raise CheckpointError(f"no {side} here has blocks of the kind {block}")
            blocks.append(kind(build, block, f"model.{side}.layers.{layer}", layer))
    return blocks
