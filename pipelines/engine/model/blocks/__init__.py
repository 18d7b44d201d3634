"""What the blocks of a layer compute, a file for each kind.

A new kind is a subclass of `families.architecture.BlockSpec` with its data, a file here with a
`Block` that computes it, and a line in ENCODER_BLOCKS or DECODER_BLOCKS. A kind that is not there,
or a field that `Block.reads` does not name, is an error when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.engine.model.blocks.attention import DecoderAttention, EncoderAttention
from pipelines.engine.model.blocks.base import Block, DecoderPass, EncoderPass
from pipelines.engine.model.blocks.cross_attention import CrossAttention
from pipelines.engine.model.blocks.feed_forward import FeedForward
from pipelines.engine.model.layers import LayerBuilder
from pipelines.families import architecture

__all__ = ["DECODER_BLOCKS", "ENCODER_BLOCKS", "decoder_blocks", "encoder_blocks"]

ENCODER_BLOCKS: Mapping[type[architecture.BlockSpec], type[Block[EncoderPass]]] = {
    architecture.SelfAttentionSpec: EncoderAttention,
    architecture.FeedForwardSpec: FeedForward,
}
DECODER_BLOCKS: Mapping[type[architecture.BlockSpec], type[Block[DecoderPass]]] = {
    architecture.SelfAttentionSpec: DecoderAttention,
    architecture.CrossAttentionSpec: CrossAttention,
    architecture.FeedForwardSpec: FeedForward,
}
"""The kind of a block → the class that computes it, made from the builder of its layers, its data,
the name of its layer in the checkpoint, and the layer's number."""


def encoder_blocks(build: LayerBuilder) -> list[Block[EncoderPass]]:
    """Return the blocks of all layers of an encoder, in order.

    Raises:
        CheckpointError: An encoder has no blocks of a kind, or does not read a field of its data,
            or two blocks of a layer have the same weights.
    """
    return _blocks(build, ENCODER_BLOCKS, "encoder")


def decoder_blocks(build: LayerBuilder) -> list[Block[DecoderPass]]:
    """Return the blocks of all layers of a decoder, in order.

    Raises:
        CheckpointError: As `encoder_blocks`; or not just one block of a layer keeps a state, or
            attends to the source.
    """
    blocks: list[Block[DecoderPass]] = _blocks(build, DECODER_BLOCKS, "decoder")
    own = [block for block in blocks if block.state is not None]
    cross = [block for block in blocks if block.source_projection is not None]
    for found, does in ((own, "keeps a state"), (cross, "attends to the source")):
        if len(found) != build.stack.layers:
            count = len(found) // build.stack.layers
            raise build.error(
                f"{count} blocks of each decoder layer are of a kind that {does}; it must be one"
            )
    return blocks


def _blocks(
    build: LayerBuilder, kinds: Mapping[type[architecture.BlockSpec], type[Any]], side: str
) -> list[Any]:
    blocks = []
    for layer in range(build.stack.layers):
        for block in build.stack.blocks:
            kind, name = kinds.get(type(block)), type(block).__name__
            if kind is None:
                raise build.error(f"blocks of the kind {name} are not computed in the {side}")
            if unread := architecture.changed_fields(block, kind.reads):
                raise build.error(f"{unread[0]!r} of {name} is not computed in the {side}")
            blocks.append(kind(build, block, f"model.{side}.layers.{layer}", layer))
    return blocks
