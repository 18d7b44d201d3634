"""The native decoder: one for every family, whose differences are data (`Architecture`).

A pass runs in one of three ways: one call of a compiled kernel (CPU, int8), a CUDA graph, or
operation by operation in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.decoder import CompiledDecoder
from pipelines.engine.kernels.host.encoder import CompiledCrossKV
from pipelines.engine.kernels.host.stack import CompiledLayer
from pipelines.engine.model.cuda_graphs import CudaGraphRunner, graph_recorders
from pipelines.engine.model.layers import (
    Embedding,
    FeedForward,
    LayerBuilder,
    RelativeBias,
    affine_of,
    embedding_name,
)
from pipelines.engine.model.lm_head import LMHead
from pipelines.engine.model.precision import ComputePlan, StackPrecision
from pipelines.engine.model.rotary import RotaryTable, rotate
from pipelines.engine.model.sources import SourceSpan, source_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import AttentionMetadata, ForwardBatch, attention_metadata
from pipelines.engine.state.kv_cache import CrossCache, KVCache, NullCrossCache
from pipelines.engine.weights.checkpoint import Weights
from pipelines.families.architecture import Architecture

__all__ = ["Decoder"]


class _DecoderLayer:
    """Self-attention, cross-attention and feed-forward, operation by operation.

    Args:
        encoder: the encoder's precision, in which sources are projected to keys and values.
    """

    def __init__(self, build: LayerBuilder, index: int, encoder: StackPrecision) -> None:
        name = f"model.decoder.layers.{index}"
        d_model, attention_dim = build.stack.d_model, build.stack.attention_dim
        self._scale = None if build.stack.scaled else 1.0
        attn, cross = f"{name}.self_attn", f"{name}.encoder_attn"
        self._index, self._heads = index, build.stack.heads
        self._norm_first = build.stack.norm_first
        self._qkv = build.linear([f"{attn}.{p}_proj" for p in "qkv"], attention_dim, d_model)
        self._out = build.linear([f"{attn}.out_proj"], d_model, attention_dim)
        self._attention_norm = build.norm(f"{name}.self_attn_layer_norm")
        self._cross_query = build.linear([f"{cross}.q_proj"], attention_dim, d_model)
        # Runs once per source over all its positions: the encoder's kind of work.
        self._cross_kv = build.linear(
            [f"{cross}.k_proj", f"{cross}.v_proj"], attention_dim, d_model, encoder
        )
        self._cross_out = build.linear([f"{cross}.out_proj"], d_model, attention_dim)
        self._cross_norm = build.norm(f"{name}.encoder_attn_layer_norm")
        self._feed_forward = FeedForward(build, name)
        self._final_norm = build.norm(f"{name}.final_layer_norm")

    def project_cross_kv(self, hidden: Tensor) -> Tensor:
        """Keys and values of encoder states.

        Args:
            hidden: [batch, length, d_model].

        Returns:
            [2 (keys, values), batch, heads, length, head_dim].
        """
        batch, length, _ = hidden.shape
        both = self._cross_kv(hidden).view(batch, length, 2, self._heads, -1)
        return both.permute(2, 0, 3, 1, 4)

    @property
    def compiled_cross_kv(self) -> CompiledLayer | None:
        """The weights of `project_cross_kv` for the compiled kernels; None if unsupported."""
        return CompiledLayer.of((self._cross_kv,), ())

    @property
    def compiled(self) -> CompiledLayer | None:
        """The weights of this layer for the compiled kernels; None if unsupported."""
        linears = (self._qkv, self._out, self._cross_query, self._cross_out)
        norms = (self._attention_norm.affine, self._cross_norm.affine, self._final_norm.affine)
        return CompiledLayer.of((*linears, *self._feed_forward.linears), norms)

    def __call__(
        self,
        x: Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """x [sequences × tokens, d_model] → the same shape; writes the cache of this layer."""
        if self._norm_first:
            x = x + self._self_attention(self._attention_norm(x), batch, metadata, cache)
            x = x + self._cross_attention(self._cross_norm(x), batch, metadata, cross)
            return x + self._feed_forward(self._final_norm(x))
        x = self._attention_norm(x + self._self_attention(x, batch, metadata, cache))
        x = self._cross_norm(x + self._cross_attention(x, batch, metadata, cross))
        return self._final_norm(x + self._feed_forward(x))

    def _self_attention(
        self, x: Tensor, batch: ForwardBatch, metadata: AttentionMetadata, cache: KVCache
    ) -> Tensor:
        sequences, tokens = batch.shape
        qkv = self._qkv(x).view(sequences, tokens, 3, self._heads, -1)
        if metadata.rotation is not None:
            rotate(qkv[:, :, :2], metadata.rotation)
        cache.write(self._index, batch.slots, metadata.write_index, qkv[:, :, 1:])
        keys, values = cache.read(self._index, batch.slots, metadata.kv_length)
        query = qkv[:, :, 0].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=metadata.mask, scale=self._scale
        )
        return self._out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _cross_attention(
        self, x: Tensor, batch: ForwardBatch, metadata: AttentionMetadata, cross: CrossCache | None
    ) -> Tensor:
        query = self._cross_query(x).view(*batch.shape, self._heads, -1).transpose(1, 2)
        if batch.capture is not None:
            batch.capture.add_queries(self._index, query, self._scale)
        if cross is not None:
            keys, values = cross.read(self._index, batch.source_slots, metadata.source_length)
            mixed = _attend_cached(query, keys, values, metadata, self._scale)
        else:
            mixed = self._attend_in_place(query, batch.encoded_sources)
        return self._cross_out(mixed.transpose(1, 2).reshape(len(x), -1))

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
        keys, values = encoded.keys[self._index], encoded.values[self._index]
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


class Decoder:
    """Tokens and encoded sources → hidden states, with the caches; `lm_head` computes logits.

    Args:
        shortlist: the only ids that can be generated; None for the whole vocabulary.

    Attributes:
        source_dtype: of encoded sources.
    """

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        plan: ComputePlan,
        shortlist: Sequence[int] | None = None,
    ) -> None:
        stack = architecture.decoder
        build = LayerBuilder(weights, stack, plan.decoder, plan.device)
        self.dtype, self.device = plan.decoder.activation_dtype, plan.device
        self._stack, self._long_sources = stack, source_of(architecture).is_long
        self._d_model, self._max_length = stack.d_model, architecture.max_target_positions
        name = embedding_name(weights, architecture, "decoder")
        self._embedding = Embedding(build, name, architecture.vocab_size)
        self._relative = self._positions = self._rotary = None
        if stack.relative is not None:
            self._relative = RelativeBias(build, "model.decoder.relative_bias.weight")
        elif stack.rotary is not None:
            self._rotary = RotaryTable(stack.rotary, stack.max_positions, self.device, self.dtype)
        else:
            self._positions = build.positions("model.decoder.embed_positions.weight")
        self._embedding_norm = (
            build.norm("model.decoder.layernorm_embedding") if stack.embedding_norm else None
        )
        self._layers = [_DecoderLayer(build, i, plan.encoder) for i in range(stack.layers)]
        self._final_norm = build.norm("model.decoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledDecoder.of(
            stack, [layer.compiled for layer in self._layers], affine_of(self._final_norm)
        )
        # Audio windows are long: at every step their keys and values are most of the bytes read, so
        # they are bfloat16 where the encoder computes in that, or the kernels read it.
        by_torch = self._long_sources and self._compiled is None
        self.source_dtype = plan.encoder.activation_dtype if by_torch else self.cache_dtype
        self._cross_kv_projection = None
        if self._compiled is not None and not self._long_sources:
            self._cross_kv_projection = CompiledCrossKV.of(
                stack, [layer.compiled_cross_kv for layer in self._layers]
            )
        recorders = graph_recorders(plan.device)
        self._graph_runner = None
        if recorders is not None:
            full_source = architecture.max_source_positions if self._long_sources else None
            self._graph_runner = CudaGraphRunner(
                self._decode, recorders, self._max_length, full_source, plan.device, self.dtype
            )
        self.lm_head = LMHead(weights, architecture, name, plan.decoder, plan.device, shortlist)

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of the KV cache: bfloat16 for the compiled kernels, which halves the bytes they read."""
        return self.dtype if self._compiled is None else torch.bfloat16

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled kernels run its layers."""
        return self._compiled is not None

    @property
    def kernels(self) -> str:
        """The kernels that the layers run on, for the user."""
        if self._compiled is not None:
            return f"kernels compiled for {self._compiled.level}"
        recorded = self._graph_runner is not None and self._graph_runner.enabled
        return "torch's kernels in CUDA graphs" if recorded else "torch's kernels"

    def project_cross_kv(
        self, hidden: Tensor, spans: Sequence[SourceSpan], threads: ComputeThreads
    ) -> list[list[Tensor]]:
        """Keys and values of encoded sources.

        Args:
            hidden: encoder states [batch, length, d_model].
            spans: where each source is in them.
            threads: compute the layers side by side.

        Returns:
            For each source and layer [2 (keys, values), heads, source length, head_dim]. Sources
            share no storage, since the longest-lived one would keep all of them alive.
        """
        if self._cross_kv_projection is not None and len(hidden) == 1:
            lengths = [stop - start for _, start, stop in spans]
            return [list(layers) for layers in self._cross_kv_projection(hidden[0], lengths)]
        jobs = [partial(layer.project_cross_kv, hidden) for layer in self._layers]
        layers = [both.to(self.source_dtype) for both in threads.run(jobs)]
        contiguous = torch.contiguous_format
        return [
            [layer[:, index, :, start:stop].clone(memory_format=contiguous) for layer in layers]
            for index, start, stop in spans
        ]

    def caches(self) -> tuple[KVCache, CrossCache | NullCrossCache]:
        """Empty caches. Where sources are read in place, the second stores no tensors."""
        stack, options = self._stack, (self.device, self.cache_dtype)
        cache = KVCache(stack.layers, stack.heads, stack.max_positions, stack.head_dim, *options)
        if self._compiled is not None or (self._long_sources and self._graph_runner is None):
            return cache, NullCrossCache()
        return cache, CrossCache(stack.layers, stack.heads, stack.head_dim, *options)

    def forward(
        self,
        ids: Sequence[Sequence[int]],
        batch: ForwardBatch,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """Run a pass, writing its tokens to the cache.

        Args:
            ids: [sequences][tokens].
            cross: None when sources are read in place.

        Returns:
            Hidden states [sequences, tokens, d_model].
        """
        if self._graph_runner is not None and cross is not None:
            states = self._graph_runner(ids, batch, cache, cross)
            if states is not None:
                return states
        tokens = torch.tensor(ids, device=self.device)
        position_index = batch.position_index(self.device)
        if self._compiled is not None:
            states = self._compiled(self._embed(tokens, position_index), batch, cache)
            return states.view(*batch.shape, -1)
        metadata = attention_metadata(batch, cross, self._max_length, self.device, self.dtype)
        return self._decode(tokens, position_index, batch, metadata, cache, cross)

    def _embed(self, ids: Tensor, position_index: slice | Tensor) -> Tensor:
        """ids [sequences, tokens] → [sequences × tokens, d_model]."""
        x = self._embedding(ids)
        if self._positions is not None:
            x = x + self._positions[position_index]
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        return x.view(-1, self._d_model)  # flat: saves two views around each linear layer

    def _decode(
        self,
        ids: Tensor,
        position_index: slice | Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """A pass operation by operation.

        Args:
            ids: [sequences, tokens].
            position_index: of the tokens, as `ForwardBatch.position_index`.

        Returns:
            [sequences, tokens, d_model].
        """
        x = self._embed(ids, position_index)
        if self._relative is not None:
            positions = position_index
            if isinstance(positions, slice):
                positions = torch.arange(positions.start, positions.stop, device=self.device)[None]
            mask = self._relative(positions, metadata.kv_length, metadata.mask)
            metadata = replace(metadata, mask=mask)
        if self._rotary is not None:
            metadata = replace(metadata, rotation=self._rotary.at(position_index))
        for layer in self._layers:
            x = layer(x, batch, metadata, cache, cross)
        x = x if self._final_norm is None else self._final_norm(x)
        return x.view(*ids.shape, -1)
