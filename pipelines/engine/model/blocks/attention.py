"""Self-attention: of an encoder over the whole source, of a decoder over its cache."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.attention import CompiledAttention
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.stack import CompiledBlock
from pipelines.engine.model.blocks.base import (
    Block,
    DecoderPass,
    EncoderPass,
    Pass,
    TileSteps,
)
from pipelines.engine.model.layers import LayerBuilder, rotate
from pipelines.engine.state.kv_cache import StateSpec
from pipelines.families.architecture import SelfAttentionSpec, changed_fields

# From so many positions on, bfloat16 attention on a CPU is computed by two products and a softmax:
# 6 heads of 1,500 positions took 9.8 ms on four cores, with torch's fused attention 16.7; at 200
# positions the fused one was faster.
_UNFUSED_LENGTH = 400


class _Attention(Block[Pass]):
    """The weights of self-attention."""

    reads = ("positions", "scaled")

    def __init__(self, build: LayerBuilder, data: SelfAttentionSpec, name: str, layer: int) -> None:
        stack, attn = build.stack, f"{name}.self_attn"
        self._data, self._layer = data, layer
        self._heads, self._head_dim = stack.heads, stack.head_dim
        self._scale = None if data.scaled else 1.0
        self._qkv = build.linear(
            [f"{attn}.{p}_proj" for p in "qkv"], stack.attention_dim, stack.d_model
        )
        self._out = build.linear([f"{attn}.out_proj"], stack.d_model, stack.attention_dim)
        super().__init__(build, f"{name}.self_attn_layer_norm")

    @property
    def compiled(self) -> CompiledBlock | None:
        return CompiledBlock.of(self._data, (self._qkv, self._out), self.norm.affine)


class EncoderAttention(_Attention[EncoderPass]):
    """Attention of every position to all positions of its source."""

    def __init__(self, build: LayerBuilder, data: SelfAttentionSpec, name: str, layer: int) -> None:
        super().__init__(build, data, name, layer)
        self._compiled_attention = None
        known = not changed_fields(data, ("positions", "scaled"))
        if known and isinstance(self._qkv, CompiledLinear):
            scale = self._head_dim**-0.5 if self._scale is None else self._scale
            self._compiled_attention = CompiledAttention.of(
                self._qkv.library, self._head_dim, scale
            )

    def apply(self, x: Tensor, context: EncoderPass) -> Tensor:
        batch, length, _ = x.shape
        qkv = self._project(x, context.rotation).view(batch, length, 3, self._heads, -1)
        query, keys, values = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=context.mask, scale=self._scale
        )
        return self._out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def tile_steps(self, hidden: Tensor, context: EncoderPass) -> TileSteps:
        width, rotation = self._heads * self._head_dim, context.rotation
        qkv = context.buffer("qkv", hidden, 3 * width)
        mixed = context.buffer("mixed", hidden, width)

        def before(tile: slice) -> None:
            x = self.norm(hidden[tile]) if self._norm_first else hidden[tile]
            own = None if rotation is None else (rotation[0][tile], rotation[1][tile])
            qkv[tile] = self._project(x, own)

        def after(tile: slice) -> None:
            hidden[tile] = self.add(hidden[tile], self._out(mixed[tile]))

        jobs = [
            partial(self._attend, head, qkv, mixed, context.mask) for head in range(self._heads)
        ]
        return TileSteps(before, jobs, after)

    def _project(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """States [..., d_model], as `apply` takes them → queries, keys and values [..., 3 × heads ×
        head_dim]."""
        qkv = self._qkv(x)
        if rotation is not None:
            rotate(qkv.view(*qkv.shape[:-1], 3, self._heads, -1)[..., :2, :, :], rotation)
        return qkv

    def _attend(self, head: int, qkv: Tensor, mixed: Tensor, mask: Tensor | None) -> None:
        """Compute the attention of one head, whose scores stay in the CPU's caches.

        In bfloat16 the scores are of that type, as in transformers' own attention. The compiled
        kernels have them in float32.

        Args:
            head: Its index.
            qkv: [length, 3 × heads × head_dim], of all positions.
            mixed: [length, heads × head_dim]; the part of this head is written.
            mask: [1, heads, length, length], or None, as the kernels need it.
        """
        length = len(qkv)
        query, keys, values = qkv.view(length, 3, self._heads, -1)[:, :, head].unbind(1)
        result = mixed.view(length, self._heads, -1)[:, head]
        if mask is not None:
            result.copy_(
                F.scaled_dot_product_attention(
                    query, keys, values, attn_mask=mask[0, head], scale=self._scale
                )
            )
        elif self._compiled_attention is not None:
            self._compiled_attention(query, keys, values, result)
        elif qkv.dtype == torch.bfloat16 and length >= _UNFUSED_LENGTH:
            scale = query.shape[-1] ** -0.5 if self._scale is None else self._scale
            weights = torch.mm(query * scale, keys.T).softmax(dim=-1)
            torch.mm(weights, values, out=result)
        else:
            result.copy_(
                F.scaled_dot_product_attention(
                    query[None, None], keys[None, None], values[None, None], scale=self._scale
                )[0, 0]
            )


class DecoderAttention(_Attention[DecoderPass]):
    """Attention of new tokens to those before them, whose keys and values are in the cache."""

    @property
    def state(self) -> StateSpec:
        return StateSpec(2, self._heads, self._head_dim)

    def apply(self, x: Tensor, context: DecoderPass) -> Tensor:
        (sequences, tokens), slots = context.batch.shape, context.batch.slots
        metadata, cache = context.metadata, context.cache
        qkv = self._qkv(x).view(sequences, tokens, 3, self._heads, -1)
        if metadata.rotation is not None:
            rotate(qkv[:, :, :2], metadata.rotation)
        cache.write(self._layer, slots, metadata.write_index, qkv[:, :, 1:])
        keys, values = cache.read(self._layer, slots, metadata.kv_length)
        query = qkv[:, :, 0].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=metadata.mask, scale=self._scale
        )
        return self._out(mixed.transpose(1, 2).reshape(len(x), -1))
