"""Cross-attention of a decoder on encoded sources, copied to a cache or read in place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.stack import CompiledBlock
from pipelines.engine.model.blocks.base import Block, DecoderPass, SourceProjection
from pipelines.engine.model.layers import LayerBuilder
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import AttentionMetadata
from pipelines.families import architecture


class CrossAttention(Block[DecoderPass]):
    """Attention of new tokens to the positions of a source, and the source's keys and values."""

    reads = ("scaled",)

    def __init__(
        self, build: LayerBuilder, data: architecture.CrossAttentionSpec, name: str, layer: int
    ) -> None:
        stack, cross = build.stack, f"{name}.encoder_attn"
        d_model, attention_dim = stack.d_model, stack.attention_dim
        self._data, self._layer, self._heads = data, layer, stack.heads
        self._scale = None if data.scaled else 1.0
        self._query = build.linear([f"{cross}.q_proj"], attention_dim, d_model)
        # Runs once per source over all its positions: the encoder's kind of work.
        self._kv = build.linear(
            [f"{cross}.k_proj", f"{cross}.v_proj"], attention_dim, d_model, build.source_side
        )
        self._out = build.linear([f"{cross}.out_proj"], d_model, attention_dim)
        super().__init__(build, f"{name}.encoder_attn_layer_norm")

    @property
    def compiled(self) -> CompiledBlock | None:
        return CompiledBlock.of(self._data, (self._query, self._out), self.norm.affine)

    @property
    def source_projection(self) -> SourceProjection:
        return self

    @property
    def compiled_kv(self) -> CompiledBlock | None:
        kv = self._kv
        return CompiledBlock(self._data, (kv,), None) if isinstance(kv, CompiledLinear) else None

    def project_kv(self, hidden: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        both = self._kv(hidden).view(batch, length, 2, self._heads, -1)
        return both.permute(2, 0, 3, 1, 4)

    def apply(self, x: Tensor, context: DecoderPass) -> Tensor:
        batch, metadata, cross = context.batch, context.metadata, context.cross
        query = self._query(x).view(*batch.shape, self._heads, -1).transpose(1, 2)
        if batch.capture is not None:
            batch.capture.add_queries(self._layer, query, self._scale)
        if cross is not None:
            keys, values = cross.read(self._layer, batch.source_slots, metadata.source_length)
            mixed = _attend_cached(query, keys, values, metadata, self._scale)
        else:
            mixed = self._attend_in_place(query, batch.encoded_sources)
        return self._out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _attend_in_place(self, query: Tensor, encoded_sources: tuple[EncodedSource, ...]) -> Tensor:
        """Attention on long sources, without copying them to a cache.

        Neighboring sequences on one source (beams, fallbacks) are folded into one set of queries,
        so that its bytes are read once for all of them.

        Args:
            query: [sequences, heads, tokens, head_dim].

        Returns:
            The same shape.
        """
        if len(encoded_sources) == 1:
            return self._attend_one(query, encoded_sources[0])
        parts, start, (_, heads, tokens, head_dim) = [], 0, query.shape
        while start < len(encoded_sources):
            encoded, stop = encoded_sources[start], start + 1
            while stop < len(encoded_sources) and encoded_sources[stop] is encoded:
                stop += 1
            folded = query[start:stop].transpose(0, 1).reshape(1, heads, -1, head_dim)
            mixed = self._attend_one(folded, encoded)
            parts.append(mixed.view(heads, stop - start, tokens, head_dim).transpose(0, 1))
            start = stop
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend_one(self, query: Tensor, encoded: EncodedSource) -> Tensor:
        """Attention of any number of queries [1, heads, queries, head_dim] on one source."""
        keys, values = encoded.keys[self._layer], encoded.values[self._layer]
        if keys.dtype == query.dtype:
            return F.scaled_dot_product_attention(
                query, keys[None], values[None], scale=self._scale
            )
        # bfloat16 sources: half the bytes, and faster than float32 even for one query (12 heads of
        # 1,500 positions: 0.6 of its time). torch's fused attention is several times slower in
        # bfloat16.
        scaled = query * (query.shape[-1] ** -0.5 if self._scale is None else self._scale)
        weights = torch.matmul(scaled[0].to(keys.dtype), keys.transpose(1, 2)).softmax(dim=-1)
        return torch.matmul(weights, values).to(query.dtype)[None]


def _attend_cached(
    query: Tensor, keys: Tensor, values: Tensor, metadata: AttentionMetadata, scale: float | None
) -> Tensor:
    """Attention on sources in the cross cache.

    The sequences on one source are folded into one set of queries, so that it is neither copied
    nor read twice.

    Args:
        query: [sequences, heads, tokens, head_dim].
        keys, values: [sources, heads, length, head_dim].

    Returns:
        [sequences, heads, tokens, head_dim].
    """
    mask = metadata.source_mask
    if metadata.source_runs is None:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    parts, first, source, (_, heads, tokens, head_dim) = [], 0, 0, query.shape
    for count, per_source in metadata.source_runs:
        own = slice(source, source + count)
        folded = query[first : first + count * per_source].view(
            count, per_source, heads, tokens, head_dim
        )
        folded = folded.transpose(1, 2).reshape(count, heads, per_source * tokens, head_dim)
        mixed = F.scaled_dot_product_attention(
            folded,
            keys[own],
            values[own],
            attn_mask=None if mask is None else mask[own],
            scale=scale,
        )
        mixed = mixed.view(count, heads, per_source, tokens, head_dim).transpose(1, 2)
        parts.append(mixed.reshape(count * per_source, heads, tokens, head_dim))
        first, source = first + count * per_source, source + count
    return parts[0] if len(parts) == 1 else torch.cat(parts)
