"""A check after loading: each kernel against torch's operations on small inputs.

It finds machine code that is wrong for this machine: a compiler bug, an instruction that a virtual
machine emulates wrongly. Activations and weights are rounded to int8 in the reference too, so what
remains is the rounding of few activations and of the bfloat16 cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.attention import CompiledAttention
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.stack import (
    AffineNorm,
    CompiledBlock,
    CompiledCrossKV,
    CompiledDecoder,
    CompiledEncoder,
)
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import ForwardBatch
from pipelines.engine.state.kv_cache import KVCache, StateSpec
from pipelines.engine.weights.quantized import quantize_weight
from pipelines.families.architecture import (
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    SelfAttentionSpec,
    Stack,
)

# Accepted if max abs(kernel − torch) ≤ this share of max abs(torch). Over 30 seeds single products
# were within 4e-7 and stacks within 0.015, where one activation may round to the next byte.
_PRODUCT_TOLERANCE, _STACK_TOLERANCE = 0.01, 0.05

_LAYERS, _HEADS, _FFN_DIM = 2, 2, 72
# Heads of 64 have code of their own (device/attn_decode.py).
_HEAD_DIMS = (16, 64)
_CPU = torch.device("cpu")


def wrong_kernels(library: KernelLibrary) -> list[str]:
    """The kernels whose results differ from torch's."""
    checks: dict[str, tuple[Callable[[_Random], bool], tuple[int, ...]]] = {
        "linear": (_linear_is_right, _HEAD_DIMS[:1]),
        "argmax": (_argmax_is_right, _HEAD_DIMS[:1]),
        "encoder_pass": (_encoder_is_right, _HEAD_DIMS),
        "project_cross_kv": (_cross_kv_is_right, _HEAD_DIMS),
        "decoder_step": (_decoder_is_right, _HEAD_DIMS),
        "attend_head": (_head_is_right, _HEAD_DIMS[1:]),
    }
    with torch.inference_mode():
        return [
            name
            for name, (is_right, head_dims) in checks.items()
            if not all(is_right(_Random(library, head_dim)) for head_dim in head_dims)
        ]


def _is_close(result: Tensor, expected: Tensor, tolerance: float = _STACK_TOLERANCE) -> bool:
    """Whether two tensors agree; False if the result contains NaN."""
    error = (result.float() - expected.float()).abs().amax()
    return bool(error <= tolerance * expected.abs().amax())


class _Random:
    """Weights and inputs from a fixed seed, for kernels and for torch."""

    def __init__(self, library: KernelLibrary, head_dim: int) -> None:
        self.library, self.head_dim, self.d_model = library, head_dim, _HEADS * head_dim
        self._generator = torch.Generator().manual_seed(1)

    def tensor(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator)

    def linear(self, outputs: int, inputs: int) -> _Linear:
        weight = self.tensor(outputs, inputs) * inputs**-0.5
        return _Linear(weight, self.tensor(outputs) * 0.1, self.library)

    def norm(self) -> AffineNorm:
        return AffineNorm(1 + 0.1 * self.tensor(self.d_model), 0.1 * self.tensor(self.d_model))


class _Linear:
    """One int8 linear layer, compiled and in torch's operations."""

    def __init__(self, weight: Tensor, bias: Tensor, library: KernelLibrary) -> None:
        self.compiled = CompiledLinear(weight, bias, library)
        quantized = quantize_weight(weight)
        self._weight = quantized.numbers.float() * quantized.scales[:, None]
        self._bias, self._quant_max = bias, library.quant_max

    def __call__(self, x: Tensor) -> Tensor:
        low, high = x.aminmax(dim=-1, keepdim=True)
        step = (high - low) / self._quant_max
        return F.linear(((x - low) / step + 0.5).floor() * step + low, self._weight, self._bias)


def _linear_is_right(random: _Random) -> bool:
    right = True
    # 45 outputs: one whole panel and a part. 15 rows: tiles of 8, 4, 2 and 1. 128 inputs: a matrix
    # unit computes them, in tiles of 32 rows with and without a next one, and of 16.
    for inputs, rows in ((30, 15), (128, 20), (128, 3 * 32 + 12)):
        layer, x = random.linear(45, inputs), random.tensor(rows, inputs)
        right = right and _is_close(layer.compiled(x), layer(x), _PRODUCT_TOLERANCE)
    return right


def _argmax_is_right(random: _Random) -> bool:
    # The second one: several records, and rows for a matrix unit.
    for count, inputs, rows in ((45, 30, 15), (1100, 128, 20)):
        layer, x = random.linear(count, inputs), random.tensor(rows, inputs)
        index, value, exp_sum = layer.compiled.argmax(x, layer.compiled.bias, exp_sums=True)
        outputs = layer(x)
        if not bool(((index >= 0) & (index < count)).all()):
            return False
        chosen = outputs.gather(1, index[:, None])[:, 0]  # by value: there may be near ties
        best, logsumexp = outputs.amax(1), outputs.logsumexp(1)
        pairs = (value, best), (chosen, best), (exp_sum.log() + value, logsumexp)
        if not all(_is_close(*pair, tolerance=_PRODUCT_TOLERANCE) for pair in pairs):
            return False
    return True


def _head_is_right(random: _Random) -> bool:
    """One of two heads, whose positions fill no last tile and no last block of queries."""
    positions, head_dim = 71, random.head_dim
    attention = CompiledAttention.of(random.library, head_dim, head_dim**-0.5)
    if attention is None:
        return False
    query, keys, values = random.tensor(positions, 3, _HEADS, head_dim)[:, :, 1].unbind(1)
    result = torch.zeros(positions, _HEADS, head_dim)
    attention(query, keys, values, result[:, 1])
    expected = F.scaled_dot_product_attention(query[None], keys[None], values[None])[0]
    return _is_close(result[:, 1], expected) and not result[:, 0].any()


def _stack(random: _Random, norm_first: bool) -> Stack:
    return Stack(
        layers=_LAYERS, heads=_HEADS, head_dim=random.head_dim, d_model=random.d_model,
        max_positions=64, blocks=(), norm=Norm(first=norm_first), positions="none",
        final_norm=norm_first,
    )  # fmt: skip


def _layer_norm(x: Tensor, norm: AffineNorm) -> Tensor:
    return F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias)


def _heads(x: Tensor) -> Tensor:
    """[length, heads × head_dim] → [heads, length, head_dim]"""
    return x.view(len(x), _HEADS, -1).transpose(0, 1)


def _attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention over [heads, length, head_dim] → [length, heads × head_dim]."""
    mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
    return mixed.transpose(0, 1).reshape(query.shape[1], -1)


def _encoder_is_right(random: _Random) -> bool:
    """A post-norm encoder with ReLU, two sources in one call."""
    d_model, lengths = random.d_model, [5, 3]
    layers = [
        (
            random.linear(3 * d_model, d_model), random.linear(d_model, d_model),
            random.linear(_FFN_DIM, d_model), random.linear(d_model, _FFN_DIM),
            random.norm(), random.norm(),
        )
        for _ in range(_LAYERS)
    ]  # fmt: skip
    feed_forward = FeedForwardSpec(_FFN_DIM, "relu")
    compiled = [
        block
        for qkv, out, up, down, attention_norm, final_norm in layers
        for block in (
            CompiledBlock(SelfAttentionSpec(), (qkv.compiled, out.compiled), attention_norm),
            CompiledBlock(feed_forward, (up.compiled, down.compiled), final_norm),
        )
    ]
    encoder = CompiledEncoder(_stack(random, norm_first=False), compiled, None, random.library)
    x = random.tensor(sum(lengths), d_model)
    expected = x.clone()
    for qkv, out, up, down, attention_norm, final_norm in layers:
        parts = [
            _attention(*map(_heads, own.chunk(3, dim=1)))
            for own in torch.split(qkv(expected), lengths)
        ]
        expected = _layer_norm(expected + out(torch.cat(parts)), attention_norm)
        expected = _layer_norm(expected + down(up(expected).relu()), final_norm)
    return _is_close(encoder(x, lengths), expected)


def _cross_kv_is_right(random: _Random) -> bool:
    d_model, lengths = random.d_model, [5, 3]
    layers = [random.linear(2 * d_model, d_model) for _ in range(_LAYERS)]
    compiled = [CompiledBlock(CrossAttentionSpec(), (layer.compiled,), None) for layer in layers]
    projection = CompiledCrossKV(_stack(random, norm_first=True), compiled, None, random.library)
    hidden = random.tensor(sum(lengths), d_model)
    results = projection(hidden, lengths)
    for result, own in zip(results, torch.split(hidden, lengths), strict=True):
        for index, layer in enumerate(layers):
            keys, values = map(_heads, layer(own).chunk(2, dim=1))
            if not _is_close(result[index], torch.stack([keys, values])):
                return False
    return True


def _decoder_is_right(random: _Random) -> bool:
    """A pre-norm decoder with GELU: 3 sequences of which 2 share a source, 2 new tokens each."""
    d_model, tokens, past_lengths = random.d_model, 2, [0, 3, 5]
    layers = [
        (
            random.linear(3 * d_model, d_model), random.linear(d_model, d_model),
            random.linear(d_model, d_model), random.linear(d_model, d_model),
            random.linear(_FFN_DIM, d_model), random.linear(d_model, _FFN_DIM),
            random.norm(), random.norm(), random.norm(),
        )
        for _ in range(_LAYERS)
    ]  # fmt: skip
    kinds = (SelfAttentionSpec(), CrossAttentionSpec(), FeedForwardSpec(_FFN_DIM, "gelu"))
    compiled = [
        CompiledBlock(kind, (first.compiled, last.compiled), norm)
        for layer in layers
        for kind, first, last, norm in zip(kinds, layer[:6:2], layer[1:6:2], layer[6:], strict=True)
    ]
    final = random.norm()
    decoder = CompiledDecoder(_stack(random, norm_first=True), compiled, final, random.library)
    # Two chunks of positions in the second source.
    sources = [
        EncodedSource(
            tuple(random.tensor(_HEADS, length, random.head_dim).bfloat16() for _ in layers),
            tuple(random.tensor(_HEADS, length, random.head_dim).bfloat16() for _ in layers),
            None,
        )
        for length in (7, 300)
    ]
    encoded_sources = (sources[0], sources[1], sources[1])
    kept = [StateSpec(2, _HEADS, random.head_dim)] * _LAYERS
    cache = KVCache(kept, 64, _CPU, torch.bfloat16)
    for slot, length in enumerate(past_lengths):
        cache.alloc()
        cache.advance(slice(slot, slot + 1), length)
    for tensor in cache.layers:
        tensor.copy_(random.tensor(*tensor.shape))
    past = [tensor.float() for tensor in cache.layers]
    x = random.tensor(3 * tokens, d_model)
    expected = []
    by_sequence = zip(torch.split(x, tokens), encoded_sources, past_lengths, strict=True)
    for index, (states, encoded, length) in enumerate(by_sequence):
        visible = torch.ones(tokens, length + tokens, dtype=torch.bool).tril(length)
        for layer, parts in enumerate(layers):
            qkv, out, cross_query, cross_out, up, down, norm, cross_norm, ffn_norm = parts
            query, *new = map(_heads, qkv(_layer_norm(states, norm)).chunk(3, dim=1))
            keys, values = (
                torch.cat([past[layer][i, index, :, :length], new[i]], dim=1) for i in (0, 1)
            )
            states = states + out(_attention(query, keys, values, visible))
            query = _heads(cross_query(_layer_norm(states, cross_norm)))
            mixed = _attention(query, encoded.keys[layer].float(), encoded.values[layer].float())
            states = states + cross_out(mixed)
            states = states + down(F.gelu(up(_layer_norm(states, ffn_norm))))
        expected.append(_layer_norm(states, final))
    batch = ForwardBatch(
        (3, tokens), slice(0, 3), past_lengths, encoded_sources, SourceGroups(0, (1, 2)), None
    )
    return _is_close(decoder(x.clone(), batch, cache), torch.cat(expected))
