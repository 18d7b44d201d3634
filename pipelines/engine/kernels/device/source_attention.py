"""Attention of one head over all positions of a source, as encoders of sound have it.

Scores of a few queries are computed at a time, and stay in the first cache until they are weights
(FlashAttention, without its division of the keys: the scores of 1,500 are 6 KB a query). Keys and
values are packed once per head, as `attention_tiles` reads them.

Where the level multiplies pairs of int16, queries, keys, weights and values are rounded to that,
with a scale for each query, for each key, and for each of the 64 numbers of the values. Sums of
int16 are exact, and become float32 after the 64 numbers of a score and after VALUE_POSITIONS
positions of a value. The weights of SCALE_POSITIONS have a scale of their own, so that many small
weights keep their part beside a large one elsewhere. On average int16 errs a quarter as much as
bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels.abi import (
    QUERY_KEY_LIMIT,
    QUERY_ROWS,
    SCALE_POSITIONS,
    SCORES_BEYOND,
    VALUE_LIMIT,
    VALUE_POSITIONS,
)
from pipelines.engine.kernels.device.attention import scale
from pipelines.engine.kernels.device.attention_tiles import (
    add_tile,
    in_pairs,
    row_softmax,
    score_tile,
    tile_columns,
    tile_products,
)
from pipelines.engine.kernels.device.heads import HEAD_SIZE
from pipelines.engine.kernels.device.intrinsics import as_float
from pipelines.engine.kernels.device.views import f32, i32, jit, u16

_LOG2_E = 1.4426950408889634
_MAGNITUDE = np.int32(0x7FFFFFFF)  # the bits of a float32 without its sign


@jit
def _inverse(largest: Any, number: Any) -> Any:
    """The factor from a float32 up to `largest` to an integer up to `number`."""
    return np.float32(number) / largest if largest != 0 else np.float32(0.0)


@jit
def _rounded(x: Any, inverse: Any) -> Any:
    """The nearest integer to x · inverse, as int32."""
    return np.int32(np.floor(x * inverse + np.float32(0.5)))


@jit
def _to_int16(values: Any, target: Any) -> Any:
    """Round float32 [HEAD_SIZE] to int16 within ± QUERY_KEY_LIMIT; return what 1 stands for.

    That is NaN or ∞ if one of the values is, which have no int16: a score is multiplied by it.
    """
    x, bits, y = f32(values), i32(values), u16(target)
    largest_bits = np.int32(0)  # compared as integers, NaN is the largest
    for i in range(HEAD_SIZE):
        largest_bits = max(largest_bits, bits[i] & _MAGNITUDE)
    largest = as_float(largest_bits)
    inverse = _inverse(largest, QUERY_KEY_LIMIT)
    for i in range(HEAD_SIZE):
        y[i] = np.uint16(_rounded(x[i], inverse) & np.int32(0xFFFF))
    return largest / np.float32(QUERY_KEY_LIMIT)


@jit
def _pack_keys(args: Any, padded: Any) -> None:
    """keys → packed_keys [padded / columns, steps, columns], zeros beyond the last one."""
    columns, scales = tile_columns(), f32(args.key_scales)
    steps = HEAD_SIZE // 2 if in_pairs() else HEAD_SIZE
    for position in range(padded):
        panel, column = position // columns, position % columns
        packed = i32(args.packed_keys + 4 * columns * steps * panel)
        if position >= args.positions:
            scales[position] = np.float32(0.0)
            for step in range(steps):
                packed[step * columns + column] = np.int32(0)
            continue
        source = args.keys + 4 * position * args.stride
        if in_pairs():
            scales[position] = _to_int16(source, args.tile)
            source = args.tile
        key = i32(source)
        for step in range(steps):
            packed[step * columns + column] = key[step]


@jit
def _scale_values(args: Any) -> None:
    """values → value_scales, value_inverses"""
    largest, inverses = i32(args.value_scales), f32(args.value_inverses)
    for i in range(HEAD_SIZE):
        largest[i] = np.int32(0)
    for position in range(args.positions):
        bits = i32(args.values + 4 * position * args.stride)
        for i in range(HEAD_SIZE):
            largest[i] = max(largest[i], bits[i] & _MAGNITUDE)
    scales = f32(args.value_scales)
    for i in range(HEAD_SIZE):
        inverses[i] = _inverse(scales[i], VALUE_LIMIT)
        scales[i] = scales[i] / np.float32(VALUE_LIMIT)


@jit
def _pack_values(args: Any, steps: Any) -> None:
    """values → packed_values [HEAD_SIZE / columns, steps, columns], a pair of positions in a step
    where the level multiplies pairs."""
    columns, inverses = tile_columns(), f32(args.value_inverses)
    for step in range(steps):
        position = 2 * step if in_pairs() else step
        first = args.values + 4 * position * args.stride
        second = first + 4 * args.stride
        # The last of an odd number is paired with itself: its second weight is zero.
        second = second if position + 1 < args.positions else first
        x, y, bits = f32(first), f32(second), i32(first)
        for tile in range(HEAD_SIZE // columns):
            packed = i32(args.packed_values + 4 * columns * (tile * steps + step))
            start = tile * columns
            for column in range(columns):
                at = start + column
                if in_pairs():
                    lower = _rounded(x[at], inverses[at]) & np.int32(0xFFFF)
                    packed[column] = lower | (_rounded(y[at], inverses[at]) << np.int32(16))
                else:
                    packed[column] = bits[at]


@jit
def _pack_queries(args: Any, first: Any, row_bytes: Any) -> None:
    """QUERY_ROWS scaled queries → packed_queries; beyond the last one it is repeated.

    Their scores are logarithms to base 2.
    """
    factor, scales = args.scale * _LOG2_E, f32(args.query_scales)
    for row in range(QUERY_ROWS):
        position = min(first + row, args.positions - 1)
        query = args.queries + 4 * position * args.stride
        target = args.packed_queries + row * row_bytes
        if in_pairs():
            scales[row] = _to_int16(query, target) * np.float32(factor)
        else:
            scale(query, factor, HEAD_SIZE, target)


@jit
def _score(args: Any, padded: Any, steps: Any, score_bytes: Any) -> None:
    """packed_queries · packed_keys → scores"""
    columns = tile_columns()
    for panel in range(padded // columns):
        keys = args.packed_keys + 4 * columns * steps * panel
        scores = args.scores + 4 * columns * panel
        if in_pairs():
            score_tile(
                args.packed_queries, 4 * steps, keys, steps, scores, score_bytes,
                args.query_scales, args.key_scales + 4 * columns * panel,
            )  # fmt: skip
        else:
            tile_products(args.packed_queries, 4 * steps, keys, steps, scores, score_bytes, 0, 0)


@jit
def _weigh_row(args: Any, row: Any, padded: Any, scores: Any, weights: Any) -> Any:
    """Scores of a row → weights; return their sum.

    In int16 the sum is that of the blocks times their factors, powers of two.
    """
    if not in_pairs():
        return row_softmax(scores, padded, weights, args.tile)
    factors, totals = f32(args.block_factors + 4 * row), f32(args.block_totals)
    blocks, top = (padded + SCALE_POSITIONS - 1) // SCALE_POSITIONS, np.float32(-np.inf)
    for block in range(blocks):
        first = block * SCALE_POSITIONS
        factor = args.block_factors + 4 * (row + QUERY_ROWS * block)
        count = min(SCALE_POSITIONS, padded - first)
        totals[block] = row_softmax(scores + 4 * first, count, weights + 2 * first, factor)
        top = max(top, factors[QUERY_ROWS * block])
    total = np.float32(0.0)
    for block in range(blocks):
        factor = _power_of_two(factors[QUERY_ROWS * block] - top)
        factors[QUERY_ROWS * block] = factor
        total += totals[block] * factor
    return total


@jit
def _power_of_two(exponent: Any) -> Any:
    """2 ** exponent for whole numbers up to 0; 0 below those of normal float32."""
    limited = np.int32(max(exponent, np.float32(-127.0)))
    return as_float((limited + np.int32(127)) << np.int32(23))


@jit
def _mix(args: Any, weights: Any, weight_bytes: Any, steps: Any, start: Any) -> None:
    """weights · packed_values → tile, for the columns from `start` on."""
    columns = tile_columns()
    values = args.packed_values + 4 * start * steps
    if not in_pairs():
        tile_products(weights, weight_bytes, values, steps, args.tile, 4 * columns, 0, 0)
        return
    tile = f32(args.tile)
    for i in range(QUERY_ROWS * columns):
        tile[i] = np.float32(0.0)
    for step in range(0, steps, VALUE_POSITIONS // 2):
        count = min(VALUE_POSITIONS // 2, steps - step)
        block = 2 * step // SCALE_POSITIONS
        add_tile(
            weights + 4 * step, weight_bytes, values + 4 * columns * step, count,
            args.tile, 4 * columns, args.block_factors + 4 * QUERY_ROWS * block, 0,
        )  # fmt: skip
    scales = f32(args.value_scales + 4 * start)
    for row in range(QUERY_ROWS):
        for column in range(columns):
            tile[row * columns + column] *= scales[column]


@jit
def attend_source(args: Any) -> None:
    """output = softmax(scale · queries · keysᵀ) · values; `args` is abi.HeadArgs."""
    columns, positions = tile_columns(), args.positions
    padded = (positions + columns - 1) // columns * columns
    inputs = 2 if in_pairs() else 1  # of a step
    key_steps, value_steps = HEAD_SIZE // inputs, (positions + inputs - 1) // inputs
    _pack_keys(args, padded)
    if in_pairs():
        _scale_values(args)
    _pack_values(args, value_steps)
    score_bytes = 4 * (padded + SCORES_BEYOND)
    weights, weight_bytes = args.scores, score_bytes
    if in_pairs():
        weights, weight_bytes = args.weights, score_bytes // 2
    for first in range(0, positions, QUERY_ROWS):
        _pack_queries(args, first, 4 * key_steps)
        _score(args, padded, key_steps, score_bytes)
        shares = f32(args.shares)
        for row in range(QUERY_ROWS):
            scores = f32(args.scores + row * score_bytes)
            for position in range(positions, padded):
                scores[position] = -np.inf
            total = _weigh_row(
                args, row, padded, args.scores + row * score_bytes, weights + row * weight_bytes
            )
            shares[row] = np.float32(1.0) / total
        for start in range(0, HEAD_SIZE, columns):
            _mix(args, weights, weight_bytes, value_steps, start)
            for row in range(min(QUERY_ROWS, positions - first)):
                target = args.output + 4 * ((first + row) * args.output_stride + start)
                scale(args.tile + 4 * columns * row, shares[row], columns, target)
