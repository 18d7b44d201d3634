"""Attention of one query (one row and head) over keys and values, and conversion to bfloat16.

`view` is how keys and values are read: `f32`, or `bf16` for bfloat16. Scores, sums and results are
float32. Strides are in bytes, from one position to the next.

Heads of 64 numbers, which nearly all models have, and softmax are emitted as vector code. Sums stay
in registers. Keys and values are read four positions at a time. Positions beyond the last one are
read as the last one, with a weight of zero. Each score is the same sum in the same order, however
many positions there are.

A long source is attended in chunks. Each chunk stores Σ exp(score − maximum) · value, Σ exp(score −
maximum) and its maximum; `combine_chunks` merges them as online softmax does (Milakov and
Gimelshein 2018; FlashAttention).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pipelines.engine.kernels.abi import SCORES_BEYOND
from pipelines.engine.kernels.device.elementwise import exponential
from pipelines.engine.kernels.device.ir import (
    CONTRACT,
    F32,
    I16,
    I32,
    I64,
    Loop,
    bf16,
    bf16_to_f32,
    call_intrinsic,
    constant,
    emitted,
    f32,
    i32,
    jit,
    larger,
    level,
    load,
    multiply_add,
    number,
    reduced,
    shuffled,
    splat,
    store,
    vector,
)

HEAD_SIZE = 64
_POSITIONS = 4  # at a time


def _row(b: Any, address: Any, bfloat16: bool) -> list[Any]:
    """HEAD_SIZE numbers at an address as float32, a register at a time."""
    lanes, loaded = level().lanes, []
    stored, size = (I16, 2) if bfloat16 else (F32, 4)
    for first in range(0, HEAD_SIZE, lanes):
        value = load(b, address, vector(stored), size * first, align=size)
        if bfloat16:  # the upper half of a float32
            bits = b.shl(b.zext(value, vector(I32)), ir.Constant(vector(I32), [16] * lanes))
            value = b.bitcast(bits, vector(F32))
        loaded.append(value)
    return loaded


def _four_sums(b: Any, vectors: list[Any]) -> Any:
    """The sums of the lanes of four vectors, as one vector of four."""
    lanes, halves = level().lanes, list(vectors)
    while lanes > 4:
        lanes //= 2
        low, high = range(lanes), range(lanes, 2 * lanes)
        halves = [b.fadd(shuffled(b, v, v, *low), shuffled(b, v, v, *high)) for v in halves]
    pairs = []
    for left, right in (halves[:2], halves[2:]):
        evens, odds = shuffled(b, left, right, 0, 4, 1, 5), shuffled(b, left, right, 2, 6, 3, 7)
        pairs.append(b.fadd(evens, odds))
    first, last = shuffled(b, *pairs, 0, 1, 4, 5), shuffled(b, *pairs, 2, 3, 6, 7)
    return b.fadd(first, last)


def _positions(b: Any, rows: Any, stride: Any, count: Any, first: Any) -> list[Any]:
    """The addresses of four positions, the last one for those beyond it."""
    last, found = b.sub(count, number(1)), []
    for index in range(_POSITIONS):
        position = b.add(first, number(index))
        there = b.icmp_signed("<", position, last)
        found.append(b.add(rows, b.mul(b.select(there, position, last), stride)))
    return found


def _emit_dot_keys(
    b: Any, bfloat16: bool, query: Any, keys: Any, stride: Any, count: Any, result: Any
) -> None:
    queries = _row(b, query, bfloat16=False)
    loop, totals = Loop(b, count, step=_POSITIONS), []
    for address in _positions(b, keys, stride, count, loop.index):
        total = None
        for query_part, key in zip(queries, _row(b, address, bfloat16), strict=True):
            product = b.fmul(query_part, key, flags=CONTRACT)
            total = product if total is None else b.fadd(total, product, flags=CONTRACT)
        totals.append(total)
    store(b, _four_sums(b, totals), b.add(result, b.mul(loop.index, number(4))))
    loop.finish()


def _emit_weighted_sum(
    b: Any, bfloat16: bool, weights: Any, values: Any, stride: Any, count: Any, result: Any
) -> None:
    lanes = level().lanes
    loop = Loop(b, count, [constant(0.0)] * (HEAD_SIZE // lanes), step=_POSITIONS)
    products: list[Any] = []
    for index, address in enumerate(_positions(b, values, stride, count, loop.index)):
        at = b.add(weights, b.mul(b.add(loop.index, number(index)), number(4)))
        weight = splat(b, load(b, at, F32))
        row = [b.fmul(weight, value, flags=CONTRACT) for value in _row(b, address, bfloat16)]
        # Two pairs of positions, so that an addition does not wait for the one before it.
        if index % 2:
            row = [b.fadd(*both, flags=CONTRACT) for both in zip(products.pop(), row, strict=True)]
        products.append(row)
    left, right = products
    fours = [b.fadd(*both) for both in zip(left, right, strict=True)]
    totals = [b.fadd(*both) for both in zip(loop.values, fours, strict=True)]
    loop.finish(totals)
    for first, total in zip(range(0, HEAD_SIZE, lanes), totals, strict=True):
        store(b, total, result, 4 * first)


def _there(b: Any, first: Any, count: Any) -> Any:
    """Which of a register's positions lie before the end."""
    lanes = level().lanes
    left = splat(b, b.sub(count, first))
    return b.icmp_signed("<", ir.Constant(vector(I64), list(range(lanes))), left)


def _exponential(b: Any, x: Any) -> Any:
    """exp(x) as `exponential` of elementwise.py, for x up to 0, or NaN."""

    lowest = constant(-87.0)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    rounded = multiply_add(b, x, constant(1.44269504), constant(0.5))
    n = call_intrinsic(b, f"llvm.floor.v{level().lanes}f32", x.type, rounded)
    r = multiply_add(b, n, constant(-0.693359375), x)
    r = multiply_add(b, n, constant(2.12194440e-4), r)
    p = constant(_EXP[0])
    for coefficient in _EXP[1:]:
        p = multiply_add(b, p, r, constant(coefficient))
    p = b.fadd(multiply_add(b, b.fmul(p, r), r, r), constant(1.0))
    one, places = (ir.Constant(vector(I32), [number] * level().lanes) for number in (127, 23))
    power = b.shl(b.add(b.fptosi(n, vector(I32)), one), places)
    return b.fmul(p, b.bitcast(power, vector(F32)))


# The polynomial of Cephes' expf.
_EXP = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


@emitted(types.float32, types.int64, types.int64, types.int64)
def softmax_weights(b: Any, scores: Any, count: Any, largest: Any) -> Any:
    """Replace scores [count] by exp(score − maximum), and those after them by zeros; return their
    sum, and store the maximum at `largest`.

    A whole register at a time, of at most SCORES_BEYOND. NaN among the scores gives NaN; the
    maximum is that of the others.
    """
    lanes, none = level().lanes, constant(float("-inf"))
    assert max(lanes, _POSITIONS) <= SCORES_BEYOND
    loop = Loop(b, count, [none], lanes)
    there = _there(b, loop.index, count)
    place = b.add(scores, b.mul(loop.index, number(4)))
    best = larger(b, b.select(there, load(b, place, vector(F32)), none), loop.values[0])
    loop.finish([best])
    top = reduced(b, [best], partial(larger, b))
    store(b, top, largest)
    tops = splat(b, top)
    loop = Loop(b, count, [constant(0.0)], lanes)
    there = _there(b, loop.index, count)
    place = b.add(scores, b.mul(loop.index, number(4)))
    weights = _exponential(b, b.fsub(load(b, place, vector(F32)), tops))
    weights = b.select(there, weights, constant(0.0))
    store(b, weights, place)
    total = b.fadd(loop.values[0], weights)
    loop.finish([total])
    return reduced(b, [total], b.fadd)


def _by_dtype(emit: Any) -> Any:
    """The functions of five addresses and numbers for float32 and for bfloat16 keys and values."""

    def of(bfloat16: bool) -> Any:
        @emitted(types.void, *[types.int64] * 5)
        def call(b: Any, left: Any, rows: Any, stride: Any, count: Any, result: Any) -> None:
            emit(b, bfloat16, left, rows, stride, count, result)

        return call

    return of(bfloat16=False), of(bfloat16=True)


# (for float32, for bfloat16). dot_keys(query, keys, stride, count, result): float32 [count] and up
# to three more. weighted_sum(weights, values, stride, count, result): float32 [HEAD_SIZE]; weights
# are zero for up to three positions beyond the last.
dot_keys, weighted_sum = _by_dtype(_emit_dot_keys), _by_dtype(_emit_weighted_sum)


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


def _unnormalized(view: Any, dot_keys_of_64: Any, weighted_sum_of_64: Any) -> Any:
    """The function for keys and values that are read so."""

    @jit
    def unnormalized(
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

    return unnormalized


def _attend(unnormalized: Any) -> Any:
    @jit
    def attend(
        query: Any, keys: Any, values: Any, stride: Any, count: Any, size: Any, scores: Any,
        result: Any,
    ) -> None:  # fmt: skip
        """result [size] = attention of a scaled query [size] over `count` positions.

        scores: a buffer, float32 [count + SCORES_BEYOND].
        """
        largest = scores + 4 * (count + SCORES_BEYOND - 1)
        total = unnormalized(query, keys, values, stride, count, size, scores, result, largest)
        output = f32(result)
        for i in range(size):
            output[i] /= total

    return attend


_unnormalized_f32 = _unnormalized(f32, *(of[0] for of in (dot_keys, weighted_sum)))
_unnormalized_bf16 = _unnormalized(bf16, *(of[1] for of in (dot_keys, weighted_sum)))
attend_f32, attend_bf16 = _attend(_unnormalized_f32), _attend(_unnormalized_bf16)


@jit
def attend_chunk(
    query: Any, keys: Any, values: Any, stride: Any, count: Any, size: Any, scores: Any,
    result: Any,
) -> None:  # fmt: skip
    """As `attend_bf16` over one chunk of a source: result [size + 2] is the sum of the values
    before it is divided, the divisor, and the maximum of the scores."""
    largest = result + 4 * (size + 1)
    total = _unnormalized_bf16(query, keys, values, stride, count, size, scores, result, largest)
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
