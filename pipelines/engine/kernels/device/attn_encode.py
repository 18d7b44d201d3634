"""Attention of one head over all positions of a source, as encoders of sound have it.

Scores of a few queries are computed at a time, and stay in the first cache until they are weights
(FlashAttention, without its division of the keys: the scores of 1,500 are 6 KB a query). Keys and
values are packed once per head, as the tiles read them: a tile is QUERY_ROWS rows by as many
columns as the registers hold, and its sums stay in registers.

Where the level multiplies pairs of int16, a step takes two inputs: a row has them side by side in
four bytes, and so has a column. Queries, keys, weights and values are rounded to int16 then,
with a scale for each query, for each key, and for each of the 64 numbers of the values. Sums of
int16 are exact, and become float32 after the 64 numbers of a score and after VALUE_POSITIONS
positions of a value. The weights of SCALE_POSITIONS have a scale of their own, so that many small
weights keep their part beside a large one elsewhere. On average int16 errs a quarter as much as
bfloat16. Elsewhere a step takes one input, in float32.

Numba compiles all branches: what the level does not use is emitted as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pipelines.engine.kernels.abi import (
    QUERY_KEY_LIMIT,
    QUERY_ROWS,
    SCALE_POSITIONS,
    SCORES_BEYOND,
    VALUE_LIMIT,
    VALUE_POSITIONS,
    WEIGHT_ONE,
)
from pipelines.engine.kernels.device.attn_decode import HEAD_SIZE, scale
from pipelines.engine.kernels.device.ir import (
    CONTRACT,
    F32,
    I16,
    I32,
    Loop,
    address_of,
    as_float,
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
    splat,
    store,
    u16,
    vector,
)

_LOWEST_POWER = -126.0  # below it, powers of two are no normal numbers
# 2 ** x for x from −0.5 to 0.5, from the highest power of x down: relative error at most 2e-7.
_EXP2 = (
    1.32647275e-3, 9.67151271e-3, 5.55073374e-2, 2.40222421e-1, 6.93146978e-1, 1.0,
)  # fmt: skip


def _column_registers() -> int:
    """Registers of one row's sums: a power of two. As many hold the columns, and one a row."""
    count = 1
    while 2 * count * (QUERY_ROWS + 1) < level().registers:
        count *= 2
    return count


@emitted(types.int64)
def _tile_columns(b: Any) -> Any:
    """The columns of a tile: a constant, at most abi.MOST_TILE_COLUMNS."""
    return number(level().lanes * _column_registers())


@emitted(types.boolean)
def _in_pairs(b: Any) -> Any:
    """Whether a step takes two inputs, int16: a constant."""
    return ir.Constant(ir.IntType(1), level().pairs)


def _add_products(b: Any, total: Any, row: Any, column: Any) -> Any:
    """total + row · column, of one step."""
    lanes = level().lanes
    if not level().pairs:
        return b.fadd(total, b.fmul(row, column, flags=CONTRACT), flags=CONTRACT)
    if level().instruction == "vpdpbusd":
        return call_intrinsic(
            b, f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", total.type, total, row, column
        )
    pairs = ir.VectorType(I16, 2 * lanes)
    operands = b.bitcast(row, pairs), b.bitcast(column, pairs)
    return b.add(total, call_intrinsic(b, "llvm.x86.avx2.pmadd.wd", total.type, *operands))


# What becomes of a register of sums: (builder, sums, where they are stored, address of the row's
# factor, address of the columns' factors) → float32.
_Finish = Callable[[Any, Any, Any, Any, Any], Any]


def _emit(b: Any, operands: Sequence[Any], finish: _Finish) -> None:
    """Emit the loop over the steps; the operands are those of `_tile`."""
    rows, row_bytes, columns, steps, result, result_bytes, row_factors, column_factors = operands
    lanes, registers = level().lanes, _column_registers()
    kind = I32 if level().pairs else F32  # what a step takes of a row
    zero = ir.Constant(vector(kind), [0 if level().pairs else 0.0] * lanes)
    register_bytes = 4 * lanes
    starts = [b.add(rows, b.mul(row_bytes, number(row))) for row in range(QUERY_ROWS)]
    loop = Loop(b, steps, [zero] * (QUERY_ROWS * registers))
    at = b.add(columns, b.mul(loop.index, number(register_bytes * registers)))
    loaded = [
        load(b, at, vector(kind), register_bytes * index, align=register_bytes)
        for index in range(registers)
    ]
    offset = b.mul(loop.index, number(4))
    added = []
    for index, start in enumerate(starts):
        row = splat(b, load(b, b.add(start, offset), kind))
        totals = loop.values[index * registers : (index + 1) * registers]
        pairs = zip(totals, loaded, strict=True)
        added.append([_add_products(b, total, row, column) for total, column in pairs])
    loop.finish([*chain(*added)])
    for index, row_added in enumerate(added):
        target = b.add(result, b.mul(result_bytes, number(index)))
        of_row = b.add(row_factors, number(4 * index))
        for register, value in enumerate(row_added):
            at = register_bytes * register
            there = address_of(b, target, at, vector(F32))
            of_columns = b.add(column_factors, number(at))
            b.store(finish(b, value, there, of_row, of_columns), there, align=4)


def _unchanged(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    return sums


def _scaled(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    by_column = b.fmul(b.sitofp(sums, vector(F32)), load(b, of_columns, vector(F32)))
    return b.fmul(by_column, splat(b, load(b, of_row, F32)))


def _added(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    factor = splat(b, load(b, of_row, F32))
    product = b.fmul(b.sitofp(sums, vector(F32)), factor, flags=CONTRACT)
    return b.fadd(b.load(there, align=4), product, flags=CONTRACT)


def _tile(pairs: bool, finish: _Finish) -> Any:
    """A function for the products of a tile, on levels that multiply pairs, or on the others.

    float32 [QUERY_ROWS, tile_columns] at `result` becomes `finish` of rows [QUERY_ROWS, steps] ·
    columns. `columns` is [steps, tile_columns], aligned to a register. Numbers are four bytes. Rows
    are `row_bytes` apart, those of the result `result_bytes`. There is at least one step. The
    factors are float32 [QUERY_ROWS] and [tile_columns], and 0 where they are not used.
    """

    @emitted(types.void, *[types.int64] * 8)
    def call(
        b: Any, rows: Any, row_bytes: Any, columns: Any, steps: Any, result: Any,
        result_bytes: Any, row_factors: Any, column_factors: Any,
    ) -> None:  # fmt: skip
        if level().pairs == pairs:
            operands = rows, row_bytes, columns, steps, result, result_bytes
            _emit(b, (*operands, row_factors, column_factors), finish)

    return call


_tile_products = _tile(False, _unchanged)  # in float32, without factors
_score_tile = _tile(True, _scaled)  # in int16, times the factors of the row and of the columns
_add_tile = _tile(True, _added)  # in int16, times the factor of the row, added to the result


def _exp2_poly(b: Any, x: Any) -> Any:
    """2 ** x for x up to 0, at least 2 ** _LOWEST_POWER; NaN for NaN."""
    lowest = constant(_LOWEST_POWER)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    whole = _rint(b, x)
    rest, power = b.fsub(x, whole), constant(_EXP2[0])
    for coefficient in _EXP2[1:]:
        power = multiply_add(b, power, rest, constant(coefficient))
    integers = vector(I32)
    places = ir.Constant(integers, [23] * level().lanes)
    exponent = b.shl(b.fptosi(whole, integers), places)
    return b.bitcast(b.add(b.bitcast(power, integers), exponent), x.type)


def _rint(b: Any, x: Any) -> Any:
    """The nearest integers, as floats."""
    return call_intrinsic(b, f"llvm.rint.v{level().lanes}f32", x.type, x)


def _over_row(b: Any, count: Any, start: Any, body: Any) -> list[Any]:
    """Loop over a row, a tile's columns at a time, which carries a vector for each register.

    Args:
        count: Numbers of the row, a multiple of the tile's columns.
        start: The carried vectors at first.
        body: (index of the first number, carried vectors) → those after it.
    """
    registers = _column_registers()
    loop = Loop(b, count, [start] * registers, level().lanes * registers)
    found: list[Any] = body(loop.index, loop.values)
    loop.finish(found)
    return found


def _store_weights(b: Any, weights: list[Any], first: Any, result: Any) -> None:
    """Store vectors of float32 from number `first` on, as the level multiplies them."""
    lanes, size = level().lanes, 2 if level().pairs else 4
    if level().pairs:
        narrow = ir.VectorType(I16, lanes)
        weights = [b.trunc(b.fptosi(weight, vector(I32)), narrow) for weight in weights]
    at = b.add(result, b.mul(first, number(size)))
    for index, stored in enumerate(weights):
        store(b, stored, at, size * lanes * index, align=2)


@emitted(types.float32, *[types.int64] * 4)
def _row_softmax(b: Any, scores: Any, count: Any, result: Any, reference: Any) -> Any:
    """weights at `result` = 2 ** (score − reference); return their sum.

    The reference is the largest score, rounded up to an integer, and is stored as a float32.

    `scores` are float32 [count], count a multiple of tile_columns. The weights are int16,
    times WEIGHT_ONE, where the level multiplies pairs, and float32 otherwise; `result` may be
    `scores` then. With NaN among the scores the sum is NaN.
    """
    lanes, registers = level().lanes, _column_registers()

    def scores_from(first: Any) -> list[Any]:
        at = b.add(scores, b.mul(first, number(4)))
        return [load(b, at, vector(F32), 4 * lanes * i) for i in range(registers)]

    def find_largest(first: Any, carried: list[Any]) -> list[Any]:
        return [larger(b, *pair) for pair in zip(scores_from(first), carried, strict=True)]

    def add_weights(first: Any, totals: list[Any]) -> list[Any]:
        weights = [_exp2_poly(b, b.fsub(score, tops)) for score in scores_from(first)]
        if level().pairs:  # whole numbers, so that their sum is that of the products
            weights = [_rint(b, b.fmul(weight, constant(WEIGHT_ONE))) for weight in weights]
        _store_weights(b, weights, first, result)
        return [b.fadd(*pair) for pair in zip(totals, weights, strict=True)]

    largest = _over_row(b, count, constant(float("-inf")), find_largest)
    top = call_intrinsic(b, "llvm.ceil.f32", F32, reduced(b, largest, partial(larger, b)))
    store(b, top, reference)
    tops = splat(b, top)
    return reduced(b, _over_row(b, count, constant(0.0), add_weights), b.fadd)


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
    columns, scales = _tile_columns(), f32(args.key_scales)
    steps = HEAD_SIZE // 2 if _in_pairs() else HEAD_SIZE
    for position in range(padded):
        panel, column = position // columns, position % columns
        packed = i32(args.packed_keys + 4 * columns * steps * panel)
        if position >= args.positions:
            scales[position] = np.float32(0.0)
            for step in range(steps):
                packed[step * columns + column] = np.int32(0)
            continue
        source = args.keys + 4 * position * args.stride
        if _in_pairs():
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
    columns, inverses = _tile_columns(), f32(args.value_inverses)
    for step in range(steps):
        position = 2 * step if _in_pairs() else step
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
                if _in_pairs():
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
        if _in_pairs():
            scales[row] = _to_int16(query, target) * np.float32(factor)
        else:
            scale(query, factor, HEAD_SIZE, target)


@jit
def _score(args: Any, padded: Any, steps: Any, score_bytes: Any) -> None:
    """packed_queries · packed_keys → scores"""
    columns = _tile_columns()
    for panel in range(padded // columns):
        keys = args.packed_keys + 4 * columns * steps * panel
        scores = args.scores + 4 * columns * panel
        if _in_pairs():
            _score_tile(
                args.packed_queries, 4 * steps, keys, steps, scores, score_bytes,
                args.query_scales, args.key_scales + 4 * columns * panel,
            )  # fmt: skip
        else:
            _tile_products(args.packed_queries, 4 * steps, keys, steps, scores, score_bytes, 0, 0)


@jit
def _weigh_row(args: Any, row: Any, padded: Any, scores: Any, weights: Any) -> Any:
    """Scores of a row → weights; return their sum.

    In int16 the sum is that of the blocks times their factors, powers of two.
    """
    if not _in_pairs():
        return _row_softmax(scores, padded, weights, args.tile)
    factors, totals = f32(args.block_factors + 4 * row), f32(args.block_totals)
    blocks, top = (padded + SCALE_POSITIONS - 1) // SCALE_POSITIONS, np.float32(-np.inf)
    for block in range(blocks):
        first = block * SCALE_POSITIONS
        factor = args.block_factors + 4 * (row + QUERY_ROWS * block)
        count = min(SCALE_POSITIONS, padded - first)
        totals[block] = _row_softmax(scores + 4 * first, count, weights + 2 * first, factor)
        top = max(top, factors[QUERY_ROWS * block])
    total = np.float32(0.0)
    for block in range(blocks):
        factor = _pow2i(factors[QUERY_ROWS * block] - top)
        factors[QUERY_ROWS * block] = factor
        total += totals[block] * factor
    return total


@jit
def _pow2i(exponent: Any) -> Any:
    """2 ** exponent for whole numbers up to 0; 0 below those of normal float32."""
    limited = np.int32(max(exponent, np.float32(-127.0)))
    return as_float((limited + np.int32(127)) << np.int32(23))


@jit
def _mix(args: Any, weights: Any, weight_bytes: Any, steps: Any, start: Any) -> None:
    """weights · packed_values → tile, for the columns from `start` on."""
    columns = _tile_columns()
    values = args.packed_values + 4 * start * steps
    if not _in_pairs():
        _tile_products(weights, weight_bytes, values, steps, args.tile, 4 * columns, 0, 0)
        return
    tile = f32(args.tile)
    for i in range(QUERY_ROWS * columns):
        tile[i] = np.float32(0.0)
    for step in range(0, steps, VALUE_POSITIONS // 2):
        count = min(VALUE_POSITIONS // 2, steps - step)
        block = 2 * step // SCALE_POSITIONS
        _add_tile(
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
    columns, positions = _tile_columns(), args.positions
    padded = (positions + columns - 1) // columns * columns
    inputs = 2 if _in_pairs() else 1  # of a step
    key_steps, value_steps = HEAD_SIZE // inputs, (positions + inputs - 1) // inputs
    _pack_keys(args, padded)
    if _in_pairs():
        _scale_values(args)
    _pack_values(args, value_steps)
    score_bytes = 4 * (padded + SCORES_BEYOND)
    weights, weight_bytes = args.scores, score_bytes
    if _in_pairs():
        weights, weight_bytes = args.weights, score_bytes // 2
    for first in range(0, positions, QUERY_ROWS):
        _pack_queries(args, first, 4 * key_steps)
        _score(args, padded, key_steps, score_bytes)
        inv_sums = f32(args.inv_sums)
        for row in range(QUERY_ROWS):
            scores = f32(args.scores + row * score_bytes)
            for position in range(positions, padded):
                scores[position] = -np.inf
            total = _weigh_row(
                args, row, padded, args.scores + row * score_bytes, weights + row * weight_bytes
            )
            inv_sums[row] = np.float32(1.0) / total
        for start in range(0, HEAD_SIZE, columns):
            _mix(args, weights, weight_bytes, value_steps, start)
            for row in range(min(QUERY_ROWS, positions - first)):
                target = args.output + 4 * ((first + row) * args.output_stride + start)
                scale(args.tile + 4 * columns * row, inv_sums[row], columns, target)
