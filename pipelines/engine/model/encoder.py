"""The native encoder: one for every family, whose differences are data (`Architecture`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.encoder import CompiledEncoder
from pipelines.engine.kernels.host.stack import CompiledLayer
from pipelines.engine.model.layers import (
    Embedding,
    FeedForward,
    LayerBuilder,
    RelativeBias,
    affine_of,
    embedding_name,
)
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.weights.architecture import Architecture
from pipelines.engine.weights.checkpoint import Weights

__all__ = ["Encoder"]

# From so many positions on, bfloat16 attention on a CPU is computed head by head. 6 heads of 1,500
# positions took 9.8 ms on four cores, with torch's fused attention 16.7; at 200 positions the fused
# one was faster.
_HEAD_BY_HEAD_LENGTH = 400


class _EncoderLayer:
    """Self-attention and feed-forward, operation by operation."""

    def __init__(self, build: LayerBuilder, name: str) -> None:
        d_model, attention_dim = build.stack.d_model, build.stack.attention_dim
        self._scale = None if build.stack.scaled else 1.0
        attn = f"{name}.self_attn"
        self._heads, self._norm_first = build.stack.heads, build.stack.norm_first
        self._qkv = build.linear([f"{attn}.{p}_proj" for p in "qkv"], attention_dim, d_model)
        self._out = build.linear([f"{attn}.out_proj"], d_model, attention_dim)
        self._attention_norm = build.norm(f"{name}.self_attn_layer_norm")
        self._feed_forward = FeedForward(build, name)
        self._final_norm = build.norm(f"{name}.final_layer_norm")

    @property
    def compiled(self) -> CompiledLayer | None:
        """The weights of this layer for the compiled kernels; None if unsupported."""
        linears = (self._qkv, self._out, *self._feed_forward.linears)
        norms = (self._attention_norm.affine, self._final_norm.affine)
        return CompiledLayer.of(linears, norms)

    def __call__(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [batch, length, d_model] → the same shape; mask [batch, 1, 1, length] or None."""
        if self._norm_first:
            x = x + self._self_attention(self._attention_norm(x), mask)
            return x + self._feed_forward(self._final_norm(x))
        x = self._attention_norm(x + self._self_attention(x, mask))
        return self._final_norm(x + self._feed_forward(x))

    def _self_attention(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        query, keys, values = (
            self._qkv(x).view(batch, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        )
        if (
            mask is None
            and length >= _HEAD_BY_HEAD_LENGTH
            and x.dtype == torch.bfloat16
            and x.is_cpu
        ):
            mixed = _head_by_head(query, keys, values, self._scale)
        else:
            mixed = F.scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, scale=self._scale
            )
        return self._out(mixed.transpose(1, 2).reshape(batch, length, -1))


def _head_by_head(query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
    """Attention [batch, heads, length, head_dim], one head at a time.

    The scores of one head stay in the CPU's caches. They are bfloat16, as in transformers' own
    attention at this precision.
    """
    batch, heads, length, head_dim = query.shape
    query = query * (head_dim**-0.5 if scale is None else scale)
    mixed = query.new_empty(batch, length, heads, head_dim).transpose(1, 2)
    for index in range(batch):
        for head in range(heads):
            weights = torch.mm(query[index, head], keys[index, head].T).softmax(dim=-1)
            torch.mm(weights, values[index, head], out=mixed[index, head])
    return mixed


class Encoder:
    """Sources → hidden states. Audio enters through two convolutions, text through embeddings."""

    def __init__(self, weights: Weights, architecture: Architecture, plan: ComputePlan) -> None:
        stack = architecture.encoder
        build = LayerBuilder(weights, stack, plan.encoder, plan.device)
        self.dtype, self.device = plan.encoder.activation_dtype, plan.device
        if architecture.source == "audio":
            name, mels = "model.encoder", architecture.num_mel_bins
            self._convolutions = [
                (build.tensor(f"{name}.conv{i}.weight", stack.d_model, inputs, 3),
                 build.tensor(f"{name}.conv{i}.bias", stack.d_model))
                for i, inputs in ((1, mels), (2, stack.d_model))
            ]  # fmt: skip
        else:
            table = embedding_name(weights, architecture, "encoder")
            self._embedding = Embedding(build, table, architecture.source_vocab_size)
        self._relative = self._positions = None
        if stack.relative is None:
            self._positions = build.positions("model.encoder.embed_positions.weight")
        else:
            self._relative = RelativeBias(build, "model.encoder.relative_bias.weight")
        self._embedding_norm = (
            build.norm("model.encoder.layernorm_embedding") if stack.embedding_norm else None
        )
        names = [f"model.encoder.layers.{i}" for i in range(stack.layers)]
        self._layers = [_EncoderLayer(build, name) for name in names]
        self._final_norm = build.norm("model.encoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledEncoder.of(
            stack, [layer.compiled for layer in self._layers], affine_of(self._final_norm)
        )

    @property
    def can_encode_flat(self) -> bool:
        """Whether `encode_text_flat` is available: several texts without padding."""
        return self._compiled is not None

    def encode_audio(self, frames: Tensor) -> Tensor:
        """Log-mel frames [batch, mels, 2 × length] → hidden states [batch, length, d_model]."""
        x = frames.to(self.device, self.dtype)
        for stride, (weight, bias) in enumerate(self._convolutions, start=1):
            x = F.gelu(F.conv1d(x, weight, bias, stride=stride, padding=1))
        return self._run(x.transpose(1, 2), None)

    def encode_text(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Encode padded texts.

        Args:
            ids: [batch, length].
            mask: [batch, 1, 1, length], −∞ for padding; None if there is no padding.

        Returns:
            Hidden states [batch, length, d_model].
        """
        return self._run(self._embedding(ids), mask)

    def encode_text_flat(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Token ids of texts → hidden states [sum of lengths, d_model], concatenated."""
        assert self._compiled is not None, "the caller checks can_encode_flat"
        lengths = [len(source) for source in sources]
        x = self._embedding(torch.tensor(list(chain.from_iterable(sources))))
        if self._positions is not None:
            x = x + self._positions[list(chain.from_iterable(map(range, lengths)))]
        x = x if self._embedding_norm is None else self._embedding_norm(x)
        return self._compiled(x, lengths)

    def _run(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Embedded sources [batch, length, d_model] → hidden states of the same shape."""
        if self._positions is not None:
            x = x + self._positions[: x.shape[1]]
        if self._relative is not None:
            positions = torch.arange(x.shape[1], device=x.device)[None]
            mask = self._relative(positions, x.shape[1], mask)
        if self._embedding_norm is not None:
            x = self._embedding_norm(x)
        for layer in self._layers:
            x = layer(x, mask)
        return x if self._final_norm is None else self._final_norm(x)
