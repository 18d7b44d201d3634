"""The native decoder: one for every family, told apart by data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.cross_kv import CompiledCrossKV
from pipelines.engine.kernels.host.decoder import CompiledDecoder
from pipelines.engine.kernels.host.stack import CompiledLayer
from pipelines.engine.model.cuda_graphs import CudaGraphRunner, recorders_for
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
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import AttentionMetadata, ForwardBatch, attention_metadata
from pipelines.engine.state.kv_cache import CrossCache, KVCache, NullCrossCache
from pipelines.engine.weights.architecture import Architecture
from pipelines.engine.weights.checkpoint import Weights

__all__ = ["Decoder", "Place"]

# Where a source's states lie: row, first position, last + 1.
Place = tuple[int, int, int]


class _DecoderLayer:
    def __init__(self, build: LayerBuilder, index: int, encoder: StackPrecision) -> None:
        name, width, inner = f"model.decoder.layers.{index}", build.stack.d_model, build.stack.inner
        self._scale = None if build.stack.scaled else 1.0
        attn, cross = f"{name}.self_attn", f"{name}.encoder_attn"
        self._index, self._heads = index, build.stack.heads
        self._norm_first = build.stack.norm_first
        self._qkv = build.linear([f"{attn}.{p}_proj" for p in "qkv"], inner, width)
        self._out = build.linear([f"{attn}.out_proj"], width, inner)
        self._attention_norm = build.norm(f"{name}.self_attn_layer_norm")
        self._cross_q = build.linear([f"{cross}.q_proj"], inner, width)
        # Runs once per source over all its positions: the encoder's kind of work.
        self._cross_kv = build.linear([f"{cross}.k_proj", f"{cross}.v_proj"], inner, width, encoder)
        self._cross_out = build.linear([f"{cross}.out_proj"], width, inner)
        self._cross_norm = build.norm(f"{name}.encoder_attn_layer_norm")
        self._feed_forward = FeedForward(build, name)
        self._final_norm = build.norm(f"{name}.final_layer_norm")

    def project_cross_kv(self, hidden: Tensor) -> Tensor:
        """Encoder states [rows, length, d_model] → [2 (keys, values), rows, heads, length,
        head_dim]."""
        rows, length, _ = hidden.shape
        both = self._cross_kv(hidden).view(rows, length, 2, self._heads, -1)
        return both.permute(2, 0, 3, 1, 4)

    @property
    def encoded(self) -> CompiledLayer | None:
        """What a source's states become keys and values by, as below."""
        return CompiledLayer.of((self._cross_kv,), ())

    @property
    def block(self) -> CompiledLayer | None:
        """This layer for a kernel that does all of them; None where it cannot."""
        products = (self._qkv, self._out, self._cross_q, self._cross_out)
        norms = (self._attention_norm.affine, self._cross_norm.affine, self._final_norm.affine)
        return CompiledLayer.of((*products, *self._feed_forward.products), norms)

    def __call__(
        self,
        x: Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """x [rows × tokens, d_model] → the same, having written this layer's cache."""
        if self._norm_first:
            x = x + self._attend(self._attention_norm(x), batch, metadata, cache)
            x = x + self._consult(self._cross_norm(x), batch, metadata, cross)
            return x + self._feed_forward(self._final_norm(x))
        x = self._attention_norm(x + self._attend(x, batch, metadata, cache))
        x = self._cross_norm(x + self._consult(x, batch, metadata, cross))
        return self._final_norm(x + self._feed_forward(x))

    def _attend(
        self, x: Tensor, batch: ForwardBatch, metadata: AttentionMetadata, cache: KVCache
    ) -> Tensor:
        rows, tokens = batch.shape
        qkv = self._qkv(x).view(rows, tokens, 3, self._heads, -1)
        cache.write(self._index, batch.slots, metadata.at, qkv[:, :, 1:])
        keys, values = cache.read(self._index, batch.slots, metadata.length)
        query = qkv[:, :, 0].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=metadata.mask, scale=self._scale
        )
        return self._out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _consult(
        self, x: Tensor, batch: ForwardBatch, metadata: AttentionMetadata, cross: CrossCache | None
    ) -> Tensor:
        query = self._cross_q(x).view(*batch.shape, self._heads, -1).transpose(1, 2)
        if batch.capture is not None:
            batch.capture.note(self._index, query, self._scale)
        if cross is not None:
            keys, values = cross.read(self._index, batch.sources, metadata.source_length)
            mixed = _attend_shared(query, keys, values, metadata, self._scale)
        else:
            mixed = self._consult_each(query, batch.encoded_sources)
        return self._cross_out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _consult_each(self, query: Tensor, encoded_sources: tuple[EncodedSource, ...]) -> Tensor:
        """Long sources are read where they lie. Neighbouring rows on one memory (beams,
        fallbacks) become more queries on it, so its bytes are read once for all of them."""
        if len(encoded_sources) == 1:
            return self._consult_one(query, encoded_sources[0])
        parts, start, (_, heads, tokens, head_dim) = [], 0, query.shape
        while start < len(encoded_sources):
            encoded, stop = encoded_sources[start], start + 1
            while stop < len(encoded_sources) and encoded_sources[stop] is encoded:
                stop += 1
            folded = query[start:stop].transpose(0, 1).reshape(1, heads, -1, head_dim)
            mixed = self._consult_one(folded, encoded)
            parts.append(mixed.view(heads, stop - start, tokens, head_dim).transpose(0, 1))
            start = stop
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _consult_one(self, query: Tensor, encoded: EncodedSource) -> Tensor:
        """Any number of queries [1, heads, queries, head_dim] on one source."""
        keys, values = encoded.keys[self._index], encoded.values[self._index]
        if keys.dtype == query.dtype:
            return F.scaled_dot_product_attention(
                query, keys[None], values[None], scale=self._scale
            )
        # Half the bytes, and faster than float32 from one query on (12 heads of 1,500 positions:
        # 0.6 of its time); torch's fused attention is several times slower in bfloat16.
        scaled = query * (query.shape[-1] ** -0.5 if self._scale is None else self._scale)
        weights = torch.matmul(scaled[0].to(keys.dtype), keys.transpose(1, 2)).softmax(dim=-1)
        return torch.matmul(weights, values).to(query.dtype)[None]


def _attend_shared(
    query: Tensor, keys: Tensor, values: Tensor, metadata: AttentionMetadata, scale: float | None
) -> Tensor:
    """query [rows, heads, tokens, head_dim] on sources [sources, heads, length, head_dim]. Rows on
    one source become more queries on it, so that it is neither copied nor read twice."""
    mask = metadata.source_mask
    if metadata.runs is None:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    parts, row, source, (_, heads, tokens, head_dim) = [], 0, 0, query.shape
    for count, width in metadata.runs:
        own = slice(source, source + count)
        folded = query[row : row + count * width].view(count, width, heads, tokens, head_dim)
        folded = folded.transpose(1, 2).reshape(count, heads, width * tokens, head_dim)
        mixed = F.scaled_dot_product_attention(
            folded,
            keys[own],
            values[own],
            attn_mask=None if mask is None else mask[own],
            scale=scale,
        )
        mixed = mixed.view(count, heads, width, tokens, head_dim).transpose(1, 2)
        parts.append(mixed.reshape(count * width, heads, tokens, head_dim))
        row, source = row + count * width, source + count
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Decoder:
    """Tokens and memories → hidden states, over the caches; `head` makes logits of them."""

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        plan: ComputePlan,
        shortlist: Sequence[int] | None = None,
    ) -> None:
        stack = architecture.decoder
        build = LayerBuilder(weights, stack, plan.decoder, plan.device)
        self.dtype, self.device = plan.decoder.activations, plan.device
        self._stack, self._long = stack, architecture.source == "audio"
        self._width, self._longest = stack.d_model, architecture.max_target_positions
        name = embedding_name(weights, architecture, "decoder")
        self._embedding = Embedding(build, name, architecture.vocab_size)
        self._relative = self._positions = None
        if stack.relative is None:
            self._positions = build.positions("model.decoder.embed_positions.weight")
        else:
            self._relative = RelativeBias(build, "model.decoder.relative_bias.weight")
        self._embedding_norm = (
            build.norm("model.decoder.layernorm_embedding") if stack.embedding_norm else None
        )
        self._layers = [_DecoderLayer(build, i, plan.encoder) for i in range(stack.layers)]
        self._final_norm = build.norm("model.decoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledDecoder.of(
            stack, [layer.block for layer in self._layers], affine_of(self._final_norm)
        )
        # Windows of audio are long: at every step their keys and values are most of what is read.
        self.source_dtype = plan.encoder.activations if self._long else self.cache_dtype
        self._cross_kv_projection = None
        if self._compiled is not None and not self._long:
            self._cross_kv_projection = CompiledCrossKV.of(
                stack, [layer.encoded for layer in self._layers]
            )
        recorders = recorders_for(plan.device)
        self._graph_runner = None
        if recorders is not None:
            whole = architecture.max_source_positions if self._long else None
            numbers = plan.device, self.dtype
            self._graph_runner = CudaGraphRunner(
                self._decode, recorders, self._longest, whole, *numbers
            )
        self.head = LMHead(weights, architecture, name, plan.decoder, plan.device, shortlist)

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of what is kept of each token; the compiled layers read half the bytes."""
        return self.dtype if self._compiled is None else torch.bfloat16

    @property
    def kernels(self) -> str:
        """Whose kernels the layers run on."""
        if self._compiled is not None:
            return f"kernels compiled for {self._compiled.level}"
        recorded = self._graph_runner is not None and self._graph_runner.works
        return "torch's kernels in CUDA graphs" if recorded else "torch's kernels"

    def project_cross_kv(self, hidden: Tensor, places: Sequence[Place]) -> list[list[Tensor]]:
        """Encoder states [rows, length, d_model] → of each place, for each layer, [2 (keys,
        values), heads, its length, head_dim]. None shares storage with its neighbours, or the
        longest-lived one would keep them all alive."""
        if self._cross_kv_projection is not None and len(hidden) == 1:
            found = self._cross_kv_projection(
                hidden[0], [stop - start for _, start, stop in places]
            )
            return [list(layers) for layers in found]
        layers = [layer.project_cross_kv(hidden).to(self.source_dtype) for layer in self._layers]
        kept = torch.contiguous_format
        return [
            [layer[:, row, :, start:stop].clone(memory_format=kept) for layer in layers]
            for row, start, stop in places
        ]

    def caches(self) -> tuple[KVCache, CrossCache | NullCrossCache]:
        """Empty ones."""
        stack, kept = self._stack, (self.device, self.cache_dtype)
        cache = KVCache(stack.layers, stack.heads, stack.max_positions, stack.head_dim, *kept)
        if self._compiled is not None or (self._long and self._graph_runner is None):
            return cache, NullCrossCache()
        return cache, CrossCache(stack.layers, stack.heads, stack.head_dim, *kept)

    def forward(
        self,
        ids: Sequence[Sequence[int]],
        batch: ForwardBatch,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """ids [rows][tokens] → hidden states [rows, tokens, d_model], writing the cache.
        cross: None when memories are read where they lie."""
        if self._graph_runner is not None and cross is not None:
            states = self._graph_runner(ids, batch, cache, cross)
            if states is not None:
                return states
        tokens, places = torch.tensor(ids, device=self.device), batch.places(self.device)
        if self._compiled is not None:
            return self._compiled(self._embedded(tokens, places), batch, cache).view(
                *batch.shape, -1
            )
        metadata = attention_metadata(batch, cross, self._longest, self.device, self.dtype)
        return self._decode(tokens, places, batch, metadata, cache, cross)

    def _embedded(self, ids: Tensor, places: slice | Tensor) -> Tensor:
        """ids [rows, tokens] → [rows × tokens, d_model]."""
        x = self._embedding(ids)
        if self._positions is not None:
            x = x + self._positions[places]
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        return x.view(-1, self._width)  # two views fewer around each of its linear layers

    def _decode(
        self,
        ids: Tensor,
        places: slice | Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """A pass operation by operation; places: where the tokens stand, as Step has it."""
        x = self._embedded(ids, places)
        if self._relative is not None:
            if isinstance(places, slice):
                places = torch.arange(places.start, places.stop, device=self.device)[None]
            mask = self._relative(places, metadata.length, metadata.mask)
            metadata = replace(metadata, mask=mask)
        for layer in self._layers:
            x = layer(x, batch, metadata, cache, cross)
        x = x if self._final_norm is None else self._final_norm(x)
        return x.view(*ids.shape, -1)
