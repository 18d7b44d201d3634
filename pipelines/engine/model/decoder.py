"""The native decoder: one for every family, told apart by data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.cross_kv import CompiledMemories
from pipelines.engine.kernels.host.decoder import CompiledDecoder
from pipelines.engine.kernels.host.stack import Block
from pipelines.engine.model.cuda_graphs import Replays
from pipelines.engine.model.cuda_recorder import recorders_for
from pipelines.engine.model.layers import (
    Builder,
    Embedding,
    FeedForward,
    RelativeBias,
    embedding_name,
)
from pipelines.engine.model.lm_head import Head
from pipelines.engine.model.precision import Plan, Side
from pipelines.engine.state.encoded_source import Memory
from pipelines.engine.state.forward_batch import Geometry, Step, geometry_of
from pipelines.engine.state.kv_cache import CrossCache, NoSources, SlotCache
from pipelines.engine.weights.architecture import Architecture
from pipelines.engine.weights.checkpoint import Weights

__all__ = ["Decoder", "Place"]

# Where a source's states lie: row, first position, last + 1.
Place = tuple[int, int, int]


class _DecoderLayer:
    def __init__(self, build: Builder, index: int, encoder: Side) -> None:
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

    def remember(self, hidden: Tensor) -> Tensor:
        """Encoder states [rows, length, d_model] → [2 (keys, values), rows, heads, length,
        head_dim]."""
        rows, length, _ = hidden.shape
        both = self._cross_kv(hidden).view(rows, length, 2, self._heads, -1)
        return both.permute(2, 0, 3, 1, 4)

    @property
    def memory(self) -> Block | None:
        """What a source's states become keys and values by, as below."""
        return Block.of((self._cross_kv,), ())

    @property
    def block(self) -> Block | None:
        """This layer for a kernel that does all of them; None where it cannot."""
        products = (self._qkv, self._out, self._cross_q, self._cross_out)
        norms = (self._attention_norm, self._cross_norm, self._final_norm)
        return Block.of((*products, *self._feed_forward.products), norms)

    def __call__(
        self, x: Tensor, step: Step, geometry: Geometry, cache: SlotCache, cross: CrossCache | None
    ) -> Tensor:
        """x [rows × tokens, d_model] → the same, having written this layer's cache."""
        if self._norm_first:
            x = x + self._attend(self._attention_norm(x), step, geometry, cache)
            x = x + self._consult(self._cross_norm(x), step, geometry, cross)
            return x + self._feed_forward(self._final_norm(x))
        x = self._attention_norm(x + self._attend(x, step, geometry, cache))
        x = self._cross_norm(x + self._consult(x, step, geometry, cross))
        return self._final_norm(x + self._feed_forward(x))

    def _attend(self, x: Tensor, step: Step, geometry: Geometry, cache: SlotCache) -> Tensor:
        rows, tokens = step.shape
        qkv = self._qkv(x).view(rows, tokens, 3, self._heads, -1)
        cache.write(self._index, step.slots, geometry.at, qkv[:, :, 1:])
        keys, values = cache.read(self._index, step.slots, geometry.length)
        query = qkv[:, :, 0].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=geometry.mask, scale=self._scale
        )
        return self._out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _consult(
        self, x: Tensor, step: Step, geometry: Geometry, cross: CrossCache | None
    ) -> Tensor:
        query = self._cross_q(x).view(*step.shape, self._heads, -1).transpose(1, 2)
        if step.readout is not None:
            step.readout.note(self._index, query, self._scale)
        if cross is not None:
            keys, values = cross.read(self._index, step.sources, geometry.source_length)
            mixed = _attend_shared(query, keys, values, geometry, self._scale)
        else:
            mixed = self._consult_each(query, step.memories)
        return self._cross_out(mixed.transpose(1, 2).reshape(len(x), -1))

    def _consult_each(self, query: Tensor, memories: tuple[Memory, ...]) -> Tensor:
        """Long sources are read where they lie. Neighbouring rows on one memory (beams,
        fallbacks) become more queries on it, so its bytes are read once for all of them."""
        if len(memories) == 1:
            return self._consult_one(query, memories[0])
        parts, start, (_, heads, tokens, head_dim) = [], 0, query.shape
        while start < len(memories):
            memory, stop = memories[start], start + 1
            while stop < len(memories) and memories[stop] is memory:
                stop += 1
            folded = query[start:stop].transpose(0, 1).reshape(1, heads, -1, head_dim)
            mixed = self._consult_one(folded, memory)
            parts.append(mixed.view(heads, stop - start, tokens, head_dim).transpose(0, 1))
            start = stop
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _consult_one(self, query: Tensor, memory: Memory) -> Tensor:
        """Any number of queries [1, heads, queries, head_dim] on one source."""
        keys, values = memory.keys[self._index], memory.values[self._index]
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
    query: Tensor, keys: Tensor, values: Tensor, geometry: Geometry, scale: float | None
) -> Tensor:
    """query [rows, heads, tokens, head_dim] on sources [sources, heads, length, head_dim]. Rows on
    one source become more queries on it, so that it is neither copied nor read twice."""
    mask = geometry.source_mask
    if geometry.runs is None:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    parts, row, source, (_, heads, tokens, head_dim) = [], 0, 0, query.shape
    for count, width in geometry.runs:
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
        plan: Plan,
        shortlist: Sequence[int] | None = None,
    ) -> None:
        stack = architecture.decoder
        build = Builder(weights, stack, plan.decoder, plan.device)
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
            stack, [layer.block for layer in self._layers], self._final_norm
        )
        # Windows of audio are long: at every step their keys and values are most of what is read.
        self.memory_dtype = plan.encoder.activations if self._long else self.cache_dtype
        self._memories = None
        if self._compiled is not None and not self._long:
            self._memories = CompiledMemories.of(stack, [layer.memory for layer in self._layers])
        recorders = recorders_for(plan.device)
        self._replays = None
        if recorders is not None:
            whole = architecture.max_source_positions if self._long else None
            numbers = plan.device, self.dtype
            self._replays = Replays(self._decode, recorders, self._longest, whole, *numbers)
        self.head = Head(weights, architecture, name, plan.decoder, plan.device, shortlist)

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of what is kept of each token; the compiled layers read half the bytes."""
        return self.dtype if self._compiled is None else torch.bfloat16

    @property
    def kernels(self) -> str:
        """Whose kernels the layers run on."""
        if self._compiled is not None:
            return f"kernels compiled for {self._compiled.level}"
        recorded = self._replays is not None and self._replays.works
        return "torch's kernels in CUDA graphs" if recorded else "torch's kernels"

    def remember(self, hidden: Tensor, places: Sequence[Place]) -> list[list[Tensor]]:
        """Encoder states [rows, length, d_model] → of each place, for each layer, [2 (keys,
        values), heads, its length, head_dim]. None shares storage with its neighbours, or the
        longest-lived one would keep them all alive."""
        if self._memories is not None and len(hidden) == 1:
            found = self._memories(hidden[0], [stop - start for _, start, stop in places])
            return [list(layers) for layers in found]
        layers = [layer.remember(hidden).to(self.memory_dtype) for layer in self._layers]
        kept = torch.contiguous_format
        return [
            [layer[:, row, :, start:stop].clone(memory_format=kept) for layer in layers]
            for row, start, stop in places
        ]

    def caches(self) -> tuple[SlotCache, CrossCache | NoSources]:
        """Empty ones."""
        stack, kept = self._stack, (self.device, self.cache_dtype)
        cache = SlotCache(stack.layers, stack.heads, stack.max_positions, stack.head_dim, *kept)
        if self._compiled is not None or (self._long and self._replays is None):
            return cache, NoSources()
        return cache, CrossCache(stack.layers, stack.heads, stack.head_dim, *kept)

    def forward(
        self,
        ids: Sequence[Sequence[int]],
        step: Step,
        cache: SlotCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """ids [rows][tokens] → hidden states [rows, tokens, d_model], writing the cache.
        cross: None when memories are read where they lie."""
        if self._replays is not None and cross is not None:
            states = self._replays(ids, step, cache, cross)
            if states is not None:
                return states
        tokens, places = torch.tensor(ids, device=self.device), step.places(self.device)
        if self._compiled is not None:
            return self._compiled(self._embedded(tokens, places), step, cache).view(*step.shape, -1)
        geometry = geometry_of(step, cross, self._longest, self.device, self.dtype)
        return self._decode(tokens, places, step, geometry, cache, cross)

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
        step: Step,
        geometry: Geometry,
        cache: SlotCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """A pass operation by operation; places: where the tokens stand, as Step has it."""
        x = self._embedded(ids, places)
        if self._relative is not None:
            if isinstance(places, slice):
                places = torch.arange(places.start, places.stop, device=self.device)[None]
            mask = self._relative(places, geometry.length, geometry.mask)
            geometry = replace(geometry, mask=mask)
        for layer in self._layers:
            x = layer(x, step, geometry, cache, cross)
        x = x if self._final_norm is None else self._final_norm(x)
        return x.view(*ids.shape, -1)
