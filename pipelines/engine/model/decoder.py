"""The native decoder: one for every family, whose differences are data (`Architecture`).

A pass runs in one of three ways: one call of a compiled kernel (CPU, int8), a CUDA graph, or
operation by operation in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pipelines.engine.kernels.host.stack import CompiledCrossKV, CompiledDecoder
from pipelines.engine.model.blocks import decoder_blocks
from pipelines.engine.model.blocks.base import DecoderPass
from pipelines.engine.model.cuda_graphs import CudaGraphRunner, graph_recorders
from pipelines.engine.model.layers import (
    Embedding,
    LayerBuilder,
    StackInput,
    affine_of,
    embedding_name,
)
from pipelines.engine.model.lm_head import LMHead
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.sources import Source, SourceSpan
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.forward_batch import AttentionMetadata, ForwardBatch, attention_metadata
from pipelines.engine.state.kv_cache import CrossCache, KVCache
from pipelines.engine.weights.checkpoint import Weights
from pipelines.families.architecture import Architecture


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
        source: Source,
        plan: ComputePlan,
        shortlist: Sequence[int] | None = None,
    ) -> None:
        stack = architecture.decoder
        build = LayerBuilder(weights, stack, plan.decoder, plan.device, plan.encoder)
        self.dtype, self.device = plan.decoder.activation_dtype, plan.device
        self._stack, self._long_sources = stack, source.is_long
        self._d_model, self._max_length = stack.d_model, architecture.max_target_positions
        name = embedding_name(weights, architecture, "decoder")
        self._embedding = Embedding(build, name, architecture.vocab_size)
        self._input = StackInput(build, "decoder")
        self._blocks = decoder_blocks(build)
        projections = (block.source_projection for block in self._blocks)
        self._cross = [each for each in projections if each is not None]
        self._states = [block.state for block in self._blocks if block.state is not None]
        self._final_norm = build.norm("model.decoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledDecoder.of(
            stack, [block.compiled for block in self._blocks], affine_of(self._final_norm)
        )
        # Audio windows are long: at every step their keys and values are most of the bytes read, so
        # they are bfloat16 where the encoder computes in that, or the kernels read it.
        by_torch = self._long_sources and self._compiled is None
        self.source_dtype = plan.encoder.activation_dtype if by_torch else self.cache_dtype
        self._cross_kv_projection = None
        if self._compiled is not None and not self._long_sources:
            self._cross_kv_projection = CompiledCrossKV.of(
                stack, [block.compiled_kv for block in self._cross]
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
        jobs = [partial(block.project_kv, hidden) for block in self._cross]
        layers = [both.to(self.source_dtype) for both in threads.run(jobs)]
        contiguous = torch.contiguous_format
        return [
            [layer[:, index, :, start:stop].clone(memory_format=contiguous) for layer in layers]
            for index, start, stop in spans
        ]

    def caches(self) -> tuple[KVCache, CrossCache | None]:
        """Empty caches; no second one where sources are read in place."""
        stack, options = self._stack, (self.device, self.cache_dtype)
        cache = KVCache(self._states, stack.max_positions, *options)
        if self._compiled is not None or (self._long_sources and self._graph_runner is None):
            return cache, None
        return cache, CrossCache(stack.layers, stack.heads, stack.head_dim, *options)

    def forward(
        self,
        ids: Sequence[Sequence[int]],
        batch: ForwardBatch,
        cache: KVCache,
        cross: CrossCache | None,
    ) -> Tensor:
        """Run a pass over ids [sequences][tokens], writing its tokens to the cache; without a
        `cross` cache sources are read in place.

        Returns hidden states [sequences, tokens, d_model].
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
        x = self._input(self._embedding(ids), position_index)
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
        """A pass operation by operation, over ids [sequences, tokens] at the positions of
        `ForwardBatch.position_index`. Returns [sequences, tokens, d_model]."""
        x = self._embed(ids, position_index)
        metadata = replace(
            metadata,
            mask=self._input.mask(position_index, metadata.kv_length, metadata.mask),
            rotation=self._input.rotation(position_index),
        )
        context = DecoderPass(batch, metadata, cache, cross)
        for block in self._blocks:
            x = block(x, context)
        x = x if self._final_norm is None else self._final_norm(x)
        return x.view(*ids.shape, -1)
