"""Vector code for attention of encoders: products whose sums stay in registers, and softmax.

A tile is QUERY_ROWS rows by as many columns as the registers hold. Where the level multiplies pairs
of int16, a step takes two inputs: a row has them side by side in four bytes, and so has a column.
Elsewhere a step takes one, in float32.

Numba compiles all branches: what the level does not use is emitted as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import QUERY_ROWS, WEIGHT_ONE
from pipelines.engine.kernels.device.intrinsics import level
from pipelines.engine.kernels.device.vectors import (
    CONTRACT,
    F32,
    I32,
    I64,
    call_intrinsic,
    constant,
    larger,
    reduced,
    splat,
    vector,
)

_LOWEST_POWER = -126.0  # below it, powers of two are no normal numbers
# 2 ** x for x from −0.5 to 0.5, from the highest power of x down: relative error at most 2e-7.
_POWER_OF_TWO = (
    1.32647275e-3, 9.67151271e-3, 5.55073374e-2, 2.40222421e-1, 6.93146978e-1, 1.0,
)  # fmt: skip


def _column_registers() -> int:
    """Registers of one row's sums: a power of two. As many hold the columns, and one a row."""
    count = 1
    while 2 * count * (QUERY_ROWS + 1) < level().registers:
        count *= 2
    return count


@intrinsic
def tile_columns(typing: Any) -> Any:
    """The columns of a tile: a constant, at most abi.MOST_TILE_COLUMNS."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(I64, level().lanes * _column_registers())

    return types.int64(), generate


@intrinsic
def in_pairs(typing: Any) -> Any:
    """Whether a step takes two inputs, int16: a constant."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), level().pairs)

    return types.boolean(), generate


def _load(b: Any, address: Any, kind: Any, align: int) -> Any:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align)


def _add_products(b: Any, total: Any, row: Any, column: Any) -> Any:
    """total + row · column, of one step."""
    lanes = level().lanes
    if not level().pairs:
        return b.fadd(total, b.fmul(row, column, flags=CONTRACT), flags=CONTRACT)
    if level().instruction == "vpdpbusd":
        return call_intrinsic(
            b, f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", total.type, total, row, column
        )
    pairs = ir.VectorType(ir.IntType(16), 2 * lanes)
    operands = b.bitcast(row, pairs), b.bitcast(column, pairs)
    return b.add(total, call_intrinsic(b, "llvm.x86.avx2.pmadd.wd", total.type, *operands))


# What becomes of a register of sums: (builder, sums, where they are stored, address of the row's
# factor, address of the columns' factors) → float32.
_Finish = Callable[[Any, Any, Any, Any, Any], Any]


def _emit(b: Any, operands: Sequence[Any], finish: _Finish) -> None:
    """Emit the loop over the steps; the operands are those of `_tile`."""
    rows, row_bytes, columns, steps, result, result_bytes, row_factors, column_factors = operands
    lanes, registers = level().lanes, _column_registers()
    number = I32 if level().pairs else F32  # what a step takes of a row
    sums = vector(number)
    zero = ir.Constant(sums, [0 if level().pairs else 0.0] * lanes)
    register_bytes = 4 * lanes
    starts = [b.add(rows, b.mul(row_bytes, ir.Constant(I64, row))) for row in range(QUERY_ROWS)]
    before, loop, done = b.block, b.append_basic_block("step"), b.append_basic_block("summed")
    b.branch(loop)
    b.position_at_end(loop)
    step = b.phi(I64)
    step.add_incoming(ir.Constant(I64, 0), before)
    totals = [[b.phi(sums) for _ in range(registers)] for _ in starts]
    at = b.add(columns, b.mul(step, ir.Constant(I64, register_bytes * registers)))
    loaded = [
        _load(
            b, b.add(at, ir.Constant(I64, register_bytes * index)),
            vector(number), register_bytes,
        )
        for index in range(registers)
    ]  # fmt: skip
    offset = b.mul(step, ir.Constant(I64, 4))
    added = []
    for start, row_totals in zip(starts, totals, strict=True):
        row = splat(b, _load(b, b.add(start, offset), number, 4))
        pairs = zip(row_totals, loaded, strict=True)
        added.append([_add_products(b, total, row, column) for total, column in pairs])
    after = b.add(step, ir.Constant(I64, 1))
    step.add_incoming(after, loop)
    for row_totals, row_added in zip(totals, added, strict=True):
        for phi, value in zip(row_totals, row_added, strict=True):
            phi.add_incoming(zero, before)
            phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, steps), loop, done)
    b.position_at_end(done)
    for index, row_added in enumerate(added):
        target = b.add(result, b.mul(result_bytes, ir.Constant(I64, index)))
        for register, value in enumerate(row_added):
            offset = register_bytes * register
            there = b.inttoptr(b.add(target, ir.Constant(I64, offset)), vector(F32).as_pointer())
            of_row = b.add(row_factors, ir.Constant(I64, 4 * index))
            of_columns = b.add(column_factors, ir.Constant(I64, offset))
            b.store(finish(b, value, there, of_row, of_columns), there, align=4)


def _unchanged(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    return sums


def _scaled(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    by_column = b.fmul(b.sitofp(sums, vector(F32)), _load(b, of_columns, vector(F32), 4))
    return b.fmul(by_column, splat(b, _load(b, of_row, F32, 4)))


def _added(b: Any, sums: Any, there: Any, of_row: Any, of_columns: Any) -> Any:
    factor = splat(b, _load(b, of_row, F32, 4))
    product = b.fmul(b.sitofp(sums, vector(F32)), factor, flags=CONTRACT)
    return b.fadd(b.load(there, align=4), product, flags=CONTRACT)


def _tile(pairs: bool, finish: _Finish) -> Any:
    """An intrinsic for the products of a tile, on levels that multiply pairs, or on the others.

    float32 [QUERY_ROWS, tile_columns] at `result` becomes `finish` of rows [QUERY_ROWS, steps] ·
    columns. `columns` is [steps, tile_columns], aligned to a register. Numbers are four bytes. Rows
    are `row_bytes` apart, those of the result `result_bytes`. There is at least one step. The
    factors are float32 [QUERY_ROWS] and [tile_columns], and 0 where they are not used.
    """

    @intrinsic
    def call(
        typing: Any,
        rows: Any,
        row_bytes: Any,
        columns: Any,
        steps: Any,
        result: Any,
        result_bytes: Any,
        row_factors: Any,
        column_factors: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if level().pairs == pairs:
                _emit(builder, args, finish)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), generate

    return call


tile_products = _tile(False, _unchanged)  # in float32, without factors
score_tile = _tile(True, _scaled)  # in int16, times the factors of the row and of the columns
add_tile = _tile(True, _added)  # in int16, times the factor of the row, added to the result


def _power_of_two(b: Any, x: Any) -> Any:
    """2 ** x for x up to 0, at least 2 ** _LOWEST_POWER; NaN for NaN."""
    lowest = constant(_LOWEST_POWER)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    whole = _rint(b, x)
    rest, power = b.fsub(x, whole), constant(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        product = b.fmul(power, rest, flags=CONTRACT)
        power = b.fadd(product, constant(coefficient), flags=CONTRACT)
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
    before, loop, done = b.block, b.append_basic_block("numbers"), b.append_basic_block("row")
    b.branch(loop)
    b.position_at_end(loop)
    first = b.phi(I64)
    first.add_incoming(ir.Constant(I64, 0), before)
    carried = [b.phi(start.type) for _ in range(registers)]
    found: list[Any] = body(first, carried)
    after = b.add(first, ir.Constant(I64, level().lanes * registers))
    first.add_incoming(after, loop)
    for phi, value in zip(carried, found, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, count), loop, done)
    b.position_at_end(done)
    return found


def _emit_softmax(b: Any, scores: Any, count: Any, result: Any, reference: Any) -> Any:
    lanes, registers = level().lanes, _column_registers()

    def scores_from(first: Any) -> list[Any]:
        at = b.add(scores, b.mul(first, ir.Constant(I64, 4)))
        places = (b.add(at, ir.Constant(I64, 4 * lanes * i)) for i in range(registers))
        return [_load(b, place, vector(F32), 4) for place in places]

    def find_largest(first: Any, carried: list[Any]) -> list[Any]:
        return [larger(b, *pair) for pair in zip(scores_from(first), carried, strict=True)]

    def add_weights(first: Any, totals: list[Any]) -> list[Any]:
        weights = [_power_of_two(b, b.fsub(score, tops)) for score in scores_from(first)]
        if level().pairs:  # whole numbers, so that their sum is that of the products
            weights = [_rint(b, b.fmul(weight, constant(WEIGHT_ONE))) for weight in weights]
        _store_weights(b, weights, first, result)
        return [b.fadd(*pair) for pair in zip(totals, weights, strict=True)]

    largest = _over_row(b, count, constant(float("-inf")), find_largest)
    top = call_intrinsic(b, "llvm.ceil.f32", F32, reduced(b, largest, partial(larger, b)))
    b.store(top, b.inttoptr(reference, F32.as_pointer()))
    tops = splat(b, top)
    return reduced(b, _over_row(b, count, constant(0.0), add_weights), b.fadd)


def _store_weights(b: Any, weights: list[Any], first: Any, result: Any) -> None:
    """Store vectors of float32 from number `first` on, as the level multiplies them."""
    lanes, size = level().lanes, 2 if level().pairs else 4
    if level().pairs:
        narrow = ir.VectorType(ir.IntType(16), lanes)
        weights = [b.trunc(b.fptosi(weight, vector(I32)), narrow) for weight in weights]
    at = b.add(result, b.mul(first, ir.Constant(I64, size)))
    for index, stored in enumerate(weights):
        place = b.add(at, ir.Constant(I64, size * stored.type.count * index))
        b.store(stored, b.inttoptr(place, stored.type.as_pointer()), align=2)


@intrinsic
def row_softmax(typing: Any, scores: Any, count: Any, result: Any, reference: Any) -> Any:
    """weights at `result` = 2 ** (score − reference); return their sum.

    The reference is the largest score, rounded up to an integer, and is stored as a float32.

    `scores` are float32 [count], count a multiple of tile_columns. The weights are int16,
    times WEIGHT_ONE, where the level multiplies pairs, and float32 otherwise; `result` may be
    `scores` then. With NaN among the scores the sum is NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _emit_softmax(builder, *args)

    return types.float32(*[types.int64] * 4), generate
