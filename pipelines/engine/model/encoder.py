"""The native encoder: one for every family, whose differences are data (`Architecture`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipelines.engine.kernels.host.attention import CompiledAttention
from pipelines.engine.kernels.host.encoder import CompiledEncoder
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.stack import CompiledLayer
from pipelines.engine.model.layers import (
    FeedForward,
    LayerBuilder,
    RelativeBias,
    affine_of,
)
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.rotary import RotaryTable, rotate
from pipelines.engine.model.sources import SourceSpan, source_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.forward_batch import padding_mask
from pipelines.engine.weights.checkpoint import Weights
from pipelines.families.architecture import Architecture

__all__ = ["Encoder"]

# From so many positions on, bfloat16 attention on a CPU is computed by two products and a softmax:
# 6 heads of 1,500 positions took 9.8 ms on four cores, with torch's fused attention 16.7; at 200
# positions the fused one was faster.
_UNFUSED_LENGTH = 400
# Positions of a source that one job computes: a quarter of the source, within these limits. They
# are enough to read the weights for, and few enough that a thread which other programs hold up
# leaves the rest of the work to the others. The number of threads must not matter.
_MIN_TILE, _MAX_TILE = 64, 256


class _EncoderLayer:
    """Self-attention and feed-forward, operation by operation."""

    def __init__(self, build: LayerBuilder, name: str) -> None:
        d_model, attention_dim = build.stack.d_model, build.stack.attention_dim
        self._scale = None if build.stack.scaled else 1.0
        self.heads, self.attention_dim = build.stack.heads, attention_dim
        attn = f"{name}.self_attn"
        self._norm_first = build.stack.norm_first
        self._qkv = build.linear([f"{attn}.{p}_proj" for p in "qkv"], attention_dim, d_model)
        self._out = build.linear([f"{attn}.out_proj"], d_model, attention_dim)
        self._compiled_attention = None
        if isinstance(self._qkv, CompiledLinear):
            head_dim = build.stack.head_dim
            scale = head_dim**-0.5 if self._scale is None else self._scale
            self._compiled_attention = CompiledAttention.of(self._qkv.library, head_dim, scale)
        self._attention_norm = build.norm(f"{name}.self_attn_layer_norm")
        self._feed_forward = FeedForward(build, name)
        self._final_norm = build.norm(f"{name}.final_layer_norm")

    @property
    def compiled(self) -> CompiledLayer | None:
        """The weights of this layer for the compiled kernels; None if unsupported."""
        linears = (self._qkv, self._out, *self._feed_forward.linears)
        norms = (self._attention_norm.affine, self._final_norm.affine)
        return CompiledLayer.of(linears, norms)

    def __call__(
        self, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """One layer.

        Args:
            x: [batch, length, d_model].
            mask: [batch, 1, 1, length], −∞ for padding, or None.
            rotation: of the positions, where they are rotary.

        Returns:
            The shape of x.
        """
        batch, length, _ = x.shape
        qkv = self.project(x, rotation).view(batch, length, 3, self.heads, -1)
        query, keys, values = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=self._scale
        )
        return self.finish(x, mixed.transpose(1, 2).reshape(batch, length, -1))

    def project(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Hidden states [..., d_model] → queries, keys and values [..., 3 × heads × head_dim].

        Args:
            x: Hidden states.
            rotation: of the positions, where they are rotary.
        """
        qkv = self._qkv(self._attention_norm(x) if self._norm_first else x)
        if rotation is not None:
            rotate(qkv.view(*qkv.shape[:-1], 3, self.heads, -1)[..., :2, :, :], rotation)
        return qkv

    def attend(self, head: int, qkv: Tensor, mixed: Tensor) -> None:
        """Compute the attention of one head, whose scores stay in the CPU's caches.

        In bfloat16 the scores are of that type, as in transformers' own attention. The compiled
        kernels have them in float32.

        Args:
            head: Its index.
            qkv: [length, 3 × heads × head_dim], of all positions.
            mixed: [length, heads × head_dim]; the part of this head is written.
        """
        length = len(qkv)
        query, keys, values = qkv.view(length, 3, self.heads, -1)[:, :, head].unbind(1)
        result = mixed.view(length, self.heads, -1)[:, head]
        if self._compiled_attention is not None:
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

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention.

        Args:
            x: Hidden states before the layer, [..., d_model].
            mixed: The values that each position attends to, [..., heads × head_dim].

        Returns:
            Hidden states after the layer, [..., d_model].
        """
        x = x + self._out(mixed)
        if self._norm_first:
            return x + self._feed_forward(self._final_norm(x))
        x = self._attention_norm(x)
        return self._final_norm(x + self._feed_forward(x))


class Encoder:
    """Sources → hidden states. Its stem embeds the sources of the model's kind."""

    def __init__(self, weights: Weights, architecture: Architecture, plan: ComputePlan) -> None:
        stack = architecture.encoder
        build = LayerBuilder(weights, stack, plan.encoder, plan.device)
        self.dtype, self.device = plan.encoder.activation_dtype, plan.device
        self._stem = source_of(architecture).stem(build)
        self._relative = self._positions = self._rotary = None
        if stack.relative is not None:
            self._relative = RelativeBias(build, "model.encoder.relative_bias.weight")
        elif stack.rotary is not None:
            self._rotary = RotaryTable(stack.rotary, stack.max_positions, self.device, self.dtype)
        else:
            self._positions = build.positions("model.encoder.embed_positions.weight")
        self._embedding_norm = (
            build.norm("model.encoder.layernorm_embedding") if stack.embedding_norm else None
        )
        names = [f"model.encoder.layers.{i}" for i in range(stack.layers)]
        self._layers = [_EncoderLayer(build, name) for name in names]
        self._final_norm = build.norm("model.encoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledEncoder.of(
            stack, [layer.compiled for layer in self._layers], affine_of(self._final_norm)
        )

    def encode(
        self, sources: Sequence[Any], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """Encode checked sources in one pass.

        On a CPU the result does not depend on the number of threads, to the last bit: each part of
        the work is computed by one of them. torch's own operations divide a product of matrices by
        the number of threads, and with it the order of its sums.

        Args:
            sources: As the model's kind of source takes them.
            threads: Compute what is independent side by side.

        Returns:
            Hidden states [batch, longest, d_model], and where each source is in them.
        """
        return self._stem.encode(self, sources, threads)

    @property
    def can_run_flat(self) -> bool:
        """As EncoderLayers.can_run_flat."""
        return self._compiled is not None

    def run_flat(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """As EncoderLayers.run_flat."""
        assert self._compiled is not None, "the caller checks can_run_flat"
        if self._positions is not None:
            x = x + self._positions[[*chain.from_iterable(map(range, lengths))]]
        return self._compiled(
            x if self._embedding_norm is None else self._embedding_norm(x), lengths
        )

    def run_each(
        self, states: Sequence[Tensor], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """As EncoderLayers.run_each."""
        lengths = [len(state) for state in states]
        if self.device.type == "cpu":
            states = [self._run_tiles(self._embedded(state), threads) for state in states]
        x = pad_sequence([*states], batch_first=True)
        if self.device.type != "cpu":
            x = self.run_padded(x, lengths)
        return x, [(index, 0, length) for index, length in enumerate(lengths)]

    def run_padded(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """As EncoderLayers.run_padded."""
        mask = padding_mask(lengths, x.shape[1], self.device, self.dtype)
        x = self._embedded(x)
        if self._relative is not None:
            positions = torch.arange(x.shape[1], device=x.device)[None]
            mask = self._relative(positions, x.shape[1], mask)
        rotation = self._rotation(slice(x.shape[1]))
        for layer in self._layers:
            x = layer(x, mask, rotation)
        return x if self._final_norm is None else self._final_norm(x)

    def _embedded(self, x: Tensor) -> Tensor:
        """Add positions to [..., length, d_model], and normalize."""
        if self._positions is not None:
            x = x + self._positions[: x.shape[-2]]
        return x if self._embedding_norm is None else self._embedding_norm(x)

    def _rotation(self, positions: slice) -> tuple[Tensor, Tensor] | None:
        return None if self._rotary is None else self._rotary.at(positions)

    def _run_tiles(self, x: Tensor, threads: ComputeThreads) -> Tensor:
        """Embedded positions [length, d_model] → hidden states of the same shape, tile by tile."""
        length, d_model = x.shape
        size = min(max(_MIN_TILE, -(-length // 4)), _MAX_TILE)
        tiles = [slice(at, min(at + size, length)) for at in range(0, length, size)]
        hidden, first = x.contiguous(), self._layers[0]
        qkv = x.new_empty(length, 3 * first.attention_dim)
        mixed = x.new_empty(length, first.attention_dim)

        def project(layer: _EncoderLayer, tile: slice) -> None:
            qkv[tile] = layer.project(hidden[tile], self._rotation(tile))

        def finish(index: int, tile: slice) -> None:
            hidden[tile] = self._layers[index].finish(hidden[tile], mixed[tile])
            if index + 1 < len(self._layers):  # at once, while the tile is in the caches
                project(self._layers[index + 1], tile)
            elif self._final_norm is not None:
                hidden[tile] = self._final_norm(hidden[tile])

        threads.run([partial(project, first, tile) for tile in tiles])
        for index, layer in enumerate(self._layers):
            threads.run([partial(layer.attend, head, qkv, mixed) for head in range(layer.heads)])
            threads.run([partial(finish, index, tile) for tile in tiles])
        return hidden
