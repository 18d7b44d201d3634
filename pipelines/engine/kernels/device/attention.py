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

from pipelines.engine.kernels.abi import SCORES_BEYOND
from pipelines.engine.kernels.device.elementwise import exponential
from pipelines.engine.kernels.device.heads import (
    HEAD_SIZE,
    dot_keys,
    softmax_weights,
    weighted_sum,
)
from pipelines.engine.kernels.device.intrinsics import bf16_to_f32
from pipelines.engine.kernels.device.views import bf16, f32, i32, jit


@jit
def scale(values: Any, factor: Any, size: Any, result: Any) -> None:
    """result [size] = factor · values [size]"""
    x, y, multiplier = f32(values), f32(result), np.float32(factor)
    for i in range(size):
        y[i] = x[i] * multiplier


@jit
def bf16_bits(bits: Any) -> Any:
    """The bits of a float32 (int32) as those of the nearest bfloat16 (int32, 0 … 65535), ties to
    even. NaN stays NaN."""
    upper = bits >> np.int32(16)
    rounded = (bits + np.int32(0x7FFF) + (upper & np.int32(1))) >> np.int32(16)
    is_nan = (bits & np.int32(0x7FFFFFFF)) > np.int32(0x7F800000)
    return (upper | np.int32(0x40) if is_nan else rounded) & np.int32(0xFFFF)


@jit
def f32_to_bf16(values: Any, size: Any, result: Any) -> None:
    """Convert float32 [size] to bfloat16."""
    x, y = i32(values), bf16(result)
    for i in range(size):
        y[i] = np.uint16(bf16_bits(x[i]))


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


def _unscaled(view: Any, dot_keys_of_64: Any, weighted_sum_of_64: Any) -> Any:
    """The function for keys and values that are read so."""

    @jit
    def unscaled(
        query: Any, keys: Any, values: Any, stride: Any, count: Any, size: Any, scores: Any,
        result: Any, largest: Any,
    ) -> Any:  # fmt: skip
        """result [size] = Σ exp(score − maximum) · value over `count` positions, 1 or more; returns
        the sum of the weights, and stores the maximum at `largest`.

        scores: a buffer, float32 [count + SCORES_BEYOND].
        """
        if size == HEAD_SIZE:
            dot_keys_of_64(query, keys, stride, count, scores)
            total = softmax_weights(scores, count, largest)
            weighted_sum_of_64(scores, values, stride, count, result)
            return total
        _dot_keys(query, keys, view, stride, count, size, scores)
        total = softmax_weights(scores, count, largest)
        _weighted_sum(scores, values, view, stride, count, size, result)
        return total

    return unscaled


def _attend(unscaled: Any) -> Any:
    @jit
    def attend(
        query: Any, keys: Any, values: Any, stride: Any, count: Any, size: Any, scores: Any,
        result: Any,
    ) -> None:  # fmt: skip
        """result [size] = attention of a scaled query [size] over `count` positions.

        scores: a buffer, float32 [count + SCORES_BEYOND].
        """
        largest = scores + 4 * (count + SCORES_BEYOND - 1)
        total = unscaled(query, keys, values, stride, count, size, scores, result, largest)
        output = f32(result)
        for i in range(size):
            output[i] /= total

    return attend


_unscaled_f32 = _unscaled(f32, *(of[0] for of in (dot_keys, weighted_sum)))
_unscaled_bf16 = _unscaled(bf16, *(of[1] for of in (dot_keys, weighted_sum)))
attend_f32, attend_bf16 = _attend(_unscaled_f32), _attend(_unscaled_bf16)


@jit
def attend_chunk(
    query: Any, keys: Any, values: Any, stride: Any, count: Any, size: Any, scores: Any,
    result: Any,
) -> None:  # fmt: skip
    """As `attend_bf16` over one chunk of a source: result [size + 2] is the sum of the values
    before it is divided, the divisor, and the maximum of the scores."""
    largest = result + 4 * (size + 1)
    total = _unscaled_bf16(query, keys, values, stride, count, size, scores, result, largest)
    f32(result)[size] = total


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
