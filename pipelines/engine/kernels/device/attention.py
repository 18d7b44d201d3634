"""Kernels of attention: over what a row has read itself, and over a piece of its source.

`numbers` says how an address is read: `floats`, or `halves` for bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels.device.elementwise import (
    exponential,
    floats,
    greatest,
    half_floats,
    jit,
    words,
)
from pipelines.engine.kernels.device.intrinsics import bf16_to_f32

__all__ = ["attend", "attend_chunk", "combine_chunks", "f32_to_bf16", "scaled"]


@jit
def scaled(query: Any, scale: Any, size: Any, result: Any) -> None:
    x, y, factor = floats(query), floats(result), np.float32(scale)
    for i in range(size):
        y[i] = x[i] * factor


@jit
def f32_to_bf16(numbers: Any, size: Any, result: Any) -> None:
    """float32 becomes bfloat16, rounded to the nearest, of two to the even one."""
    x, y = words(numbers), half_floats(result)
    for i in range(size):
        odd = (x[i] >> np.int32(16)) & np.int32(1)
        y[i] = np.uint16((x[i] + np.int32(0x7FFF) + odd) >> np.int32(16))


@jit
def _score(
    query: Any, keys: Any, numbers: Any, stride: Any, count: Any, size: Any, result: Any
) -> None:
    """The products of a query with `count` keys, `stride` bytes each."""
    q, scores = floats(query), floats(result)
    fours = count // 4
    for four in range(fours):
        first = keys + 4 * four * stride
        a, b = numbers(first), numbers(first + stride)
        c, d = numbers(first + 2 * stride), numbers(first + 3 * stride)
        s, t, u, v = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for i in range(size):
            s += q[i] * bf16_to_f32(a[i])
            t += q[i] * bf16_to_f32(b[i])
            u += q[i] * bf16_to_f32(c[i])
            v += q[i] * bf16_to_f32(d[i])
        place = 4 * four
        scores[place], scores[place + 1] = s, t
        scores[place + 2], scores[place + 3] = u, v
    for place in range(4 * fours, count):
        key, total = numbers(keys + place * stride), np.float32(0.0)
        for i in range(size):
            total += q[i] * bf16_to_f32(key[i])
        scores[place] = total


@jit
def _softmax_weights(address: Any, count: Any, most: Any) -> Any:
    """Scores become their exponentials, below `most`; their sum."""
    scores, total = floats(address), np.float32(0.0)
    for i in range(count):
        scores[i] = exponential(scores[i] - most)
        total += scores[i]
    return total


@jit
def _weighted_sum(
    probs: Any, values: Any, numbers: Any, stride: Any, count: Any, size: Any, result: Any
) -> None:
    """The sum of `count` values, each with its chance."""
    w, y = floats(probs), floats(result)
    for i in range(size):
        y[i] = np.float32(0.0)
    fours = count // 4
    for four in range(fours):
        first, place = values + 4 * four * stride, 4 * four
        a, b = numbers(first), numbers(first + stride)
        c, d = numbers(first + 2 * stride), numbers(first + 3 * stride)
        s, t, u, v = w[place], w[place + 1], w[place + 2], w[place + 3]
        for i in range(size):
            y[i] += (s * bf16_to_f32(a[i]) + t * bf16_to_f32(b[i])) + (
                u * bf16_to_f32(c[i]) + v * bf16_to_f32(d[i])
            )
    for place in range(4 * fours, count):
        value, chance = numbers(values + place * stride), w[place]
        for i in range(size):
            y[i] += chance * bf16_to_f32(value[i])


@jit
def attend(
    query: Any, keys: Any, values: Any, numbers: Any, stride: Any, count: Any, size: Any,
    scores: Any, result: Any,
) -> None:  # fmt: skip
    """result [size] = attention of a scaled query over `count` keys and values, `stride` bytes
    each."""
    _score(query, keys, numbers, stride, count, size, scores)
    total = _softmax_weights(scores, count, greatest(scores, count))
    _weighted_sum(scores, values, numbers, stride, count, size, result)
    mixed = floats(result)
    for i in range(size):
        mixed[i] /= total


@jit
def attend_chunk(
    query: Any, keys: Any, values: Any, numbers: Any, stride: Any, count: Any, size: Any,
    scores: Any, result: Any,
) -> None:  # fmt: skip
    """As `attend`, over a piece of the source: result [size + 2] is the sum of the values, before
    division, and what it is to be divided by, and the greatest score."""
    _score(query, keys, numbers, stride, count, size, scores)
    most, partial = greatest(scores, count), floats(result)
    partial[size], partial[size + 1] = _softmax_weights(scores, count, most), most
    _weighted_sum(scores, values, numbers, stride, count, size, result)


@jit
def combine_chunks(found: Any, pieces: Any, size: Any, result: Any) -> None:
    """result [size] = what several pieces, each [size + 2], have found together."""
    mixed, most = floats(result), floats(found)[size + 1]
    for piece in range(1, pieces):
        most = max(most, floats(found + 4 * piece * (size + 2))[size + 1])
    total = np.float32(0.0)
    for i in range(size):
        mixed[i] = np.float32(0.0)
    for piece in range(pieces):
        own = floats(found + 4 * piece * (size + 2))
        share = exponential(own[size + 1] - most)
        total += share * own[size]
        for i in range(size):
            mixed[i] += share * own[i]
    for i in range(size):
        mixed[i] /= total
