"""Attention of one query (one row and head) over keys and values, and conversion to bfloat16.

`view` is how keys and values are read: `f32`, or `bf16` for bfloat16. Scores, sums and results are
float32. Strides are in bytes, from one position to the next.

A long source is attended in chunks. Each chunk stores Σ exp(score − maximum) · value, Σ exp(score −
maximum) and its maximum; `combine_chunks` merges them as online softmax does (Milakov and
Gimelshein 2018; FlashAttention).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels.device.elementwise import exponential, maximum
from pipelines.engine.kernels.device.intrinsics import bf16_to_f32
from pipelines.engine.kernels.device.views import bf16, f32, i32, jit

__all__ = ["attend", "attend_chunk", "combine_chunks", "f32_to_bf16", "scale"]


@jit
def scale(values: Any, factor: Any, size: Any, result: Any) -> None:
    """result [size] = factor · values [size]"""
    x, y, multiplier = f32(values), f32(result), np.float32(factor)
    for i in range(size):
        y[i] = x[i] * multiplier


@jit
def f32_to_bf16(values: Any, size: Any, result: Any) -> None:
    """Convert float32 [size] to bfloat16, rounding to nearest, ties to even."""
    x, y = i32(values), bf16(result)
    for i in range(size):
        odd = (x[i] >> np.int32(16)) & np.int32(1)
        y[i] = np.uint16((x[i] + np.int32(0x7FFF) + odd) >> np.int32(16))


@jit
def _dot_keys(
    query: Any, keys: Any, view: Any, stride: Any, count: Any, size: Any, result: Any
) -> None:
    """result [count] = dot products of query [size] and keys, four keys at a time."""
    q, scores = f32(query), f32(result)
    fours = count // 4
    for four in range(fours):
        first = keys + 4 * four * stride
        a, b = view(first), view(first + stride)
        c, d = view(first + 2 * stride), view(first + 3 * stride)
        s, t, u, v = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for i in range(size):
            s += q[i] * bf16_to_f32(a[i])
            t += q[i] * bf16_to_f32(b[i])
            u += q[i] * bf16_to_f32(c[i])
            v += q[i] * bf16_to_f32(d[i])
        position = 4 * four
        scores[position], scores[position + 1] = s, t
        scores[position + 2], scores[position + 3] = u, v
    for position in range(4 * fours, count):
        key, total = view(keys + position * stride), np.float32(0.0)
        for i in range(size):
            total += q[i] * bf16_to_f32(key[i])
        scores[position] = total


@jit
def _softmax_weights(address: Any, count: Any, largest: Any) -> Any:
    """Replace scores [count] by exp(score − largest); return their sum."""
    scores, total = f32(address), np.float32(0.0)
    for i in range(count):
        scores[i] = exponential(scores[i] - largest)
        total += scores[i]
    return total


@jit
def _weighted_sum(
    weights: Any, values: Any, view: Any, stride: Any, count: Any, size: Any, result: Any
) -> None:
    """result [size] = Σ weights[position] · values[position], four positions at a time."""
    w, y = f32(weights), f32(result)
    for i in range(size):
        y[i] = np.float32(0.0)
    fours = count // 4
    for four in range(fours):
        first, position = values + 4 * four * stride, 4 * four
        a, b = view(first), view(first + stride)
        c, d = view(first + 2 * stride), view(first + 3 * stride)
        s, t, u, v = w[position], w[position + 1], w[position + 2], w[position + 3]
        for i in range(size):
            y[i] += (s * bf16_to_f32(a[i]) + t * bf16_to_f32(b[i])) + (
                u * bf16_to_f32(c[i]) + v * bf16_to_f32(d[i])
            )
    for position in range(4 * fours, count):
        value, weight = view(values + position * stride), w[position]
        for i in range(size):
            y[i] += weight * bf16_to_f32(value[i])


@jit
def attend(
    query: Any, keys: Any, values: Any, view: Any, stride: Any, count: Any, size: Any,
    scores: Any, result: Any,
) -> None:  # fmt: skip
    """result [size] = attention of a scaled query [size] over `count` positions.

    scores: a buffer, float32 [count].
    """
    _dot_keys(query, keys, view, stride, count, size, scores)
    total = _softmax_weights(scores, count, maximum(scores, count))
    _weighted_sum(scores, values, view, stride, count, size, result)
    output = f32(result)
    for i in range(size):
        output[i] /= total


@jit
def attend_chunk(
    query: Any, keys: Any, values: Any, view: Any, stride: Any, count: Any, size: Any,
    scores: Any, result: Any,
) -> None:  # fmt: skip
    """`attend` over one chunk of a source: result [size + 2] is the sum of the values before it is
    divided, the divisor, and the maximum of the scores."""
    _dot_keys(query, keys, view, stride, count, size, scores)
    largest, partial = maximum(scores, count), f32(result)
    partial[size], partial[size + 1] = _softmax_weights(scores, count, largest), largest
    _weighted_sum(scores, values, view, stride, count, size, result)


@jit
def combine_chunks(partials: Any, chunks: Any, size: Any, result: Any) -> None:
    """result [size] = attention over a whole source, from partials [chunks, size + 2]."""
    output, largest = f32(result), f32(partials)[size + 1]
    for chunk in range(1, chunks):
        largest = max(largest, f32(partials + 4 * chunk * (size + 2))[size + 1])
    total = np.float32(0.0)
    for i in range(size):
        output[i] = np.float32(0.0)
    for chunk in range(chunks):
        partial = f32(partials + 4 * chunk * (size + 2))
        share = exponential(partial[size + 1] - largest)
        total += share * partial[size]
        for i in range(size):
            output[i] += share * partial[i]
    for i in range(size):
        output[i] /= total
