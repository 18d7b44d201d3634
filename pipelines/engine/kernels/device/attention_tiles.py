"""Vector code for attention of encoders: products whose sums stay in registers, and softmax.

A tile is QUERY_ROWS rows by as many columns as the registers hold. Where the level multiplies
bfloat16 (AVX512-BF16), a step takes two inputs: a row has them side by side in four bytes, and so
has a column. Elsewhere a step takes one, in float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import QUERY_ROWS
from pipelines.engine.kernels.device.intrinsics import level
from pipelines.engine.kernels.device.vectors import (
    F32,
    I32,
    I64,
    constant,
    larger,
    reduced,
    splat,
    vector,
)

__all__ = ["multiplies_bfloat16", "row_softmax", "tile_columns", "tile_products"]

_CONTRACT = ("contract",)  # a product and a sum may be one instruction
_LOWEST_POWER = -126.0  # below it, powers of two are no normal numbers
# 2 ** x for x from −0.5 to 0.5, from the highest power of x down: relative error at most 2e-7.
_POWER_OF_TWO = (
    1.32647275e-3, 9.67151271e-3, 5.55073374e-2, 2.40222421e-1, 6.93146978e-1, 1.0,
)  # fmt: skip


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat16, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"


_BF16 = _BFloat()


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
def multiplies_bfloat16(typing: Any) -> Any:
    """Whether a step takes two inputs in bfloat16: a constant."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), level().bfloat16)

    return types.boolean(), generate


def _load(b: Any, address: Any, kind: Any, align: int) -> Any:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align)


def _add_products(b: Any, total: Any, row: Any, column: Any) -> Any:
    """total + row · column, of one step."""
    if not level().bfloat16:
        return b.fadd(total, b.fmul(row, column, flags=_CONTRACT), flags=_CONTRACT)
    pairs = ir.VectorType(_BF16, 2 * level().lanes)
    kind = ir.FunctionType(total.type, [total.type, pairs, pairs])
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * level().lanes}"
    function = b.module.declare_intrinsic(name, (), kind)
    return b.call(function, (total, b.bitcast(row, pairs), b.bitcast(column, pairs)))


def _emit(
    b: Any, rows: Any, row_bytes: Any, columns: Any, steps: Any, result: Any, result_bytes: Any
) -> None:
    lanes, registers = level().lanes, _column_registers()
    number = I32 if level().bfloat16 else F32  # what a step takes of a row
    sums = vector(F32)
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
            phi.add_incoming(ir.Constant(sums, [0.0] * lanes), before)
            phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, steps), loop, done)
    b.position_at_end(done)
    for index, row_added in enumerate(added):
        target = b.add(result, b.mul(result_bytes, ir.Constant(I64, index)))
        for register, value in enumerate(row_added):
            there = b.add(target, ir.Constant(I64, register_bytes * register))
            b.store(value, b.inttoptr(there, sums.as_pointer()), align=4)


@intrinsic
def tile_products(
    typing: Any,
    rows: Any,
    row_bytes: Any,
    columns: Any,
    steps: Any,
    result: Any,
    result_bytes: Any,
) -> Any:
    """float32 [QUERY_ROWS, tile_columns] at `result` = rows [QUERY_ROWS, steps] · columns.

    `columns` is [steps, tile_columns], aligned to a register. Numbers are four bytes. Rows are
    `row_bytes` apart, those of the result `result_bytes`. There is at least one step.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, *args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


def _power_of_two(b: Any, x: Any) -> Any:
    """2 ** x for x up to 0, at least 2 ** _LOWEST_POWER; NaN for NaN."""
    lowest = constant(_LOWEST_POWER)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    kind = ir.FunctionType(x.type, [x.type])
    rounded = b.module.declare_intrinsic(f"llvm.rint.v{level().lanes}f32", (), kind)
    whole = b.call(rounded, [x])
    rest, power = b.fsub(x, whole), constant(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        product = b.fmul(power, rest, flags=_CONTRACT)
        power = b.fadd(product, constant(coefficient), flags=_CONTRACT)
    integers = vector(I32)
    places = ir.Constant(integers, [23] * level().lanes)
    exponent = b.shl(b.fptosi(whole, integers), places)
    return b.bitcast(b.add(b.bitcast(power, integers), exponent), x.type)


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


def _emit_softmax(b: Any, scores: Any, count: Any, result: Any) -> Any:
    lanes, registers = level().lanes, _column_registers()

    def scores_from(first: Any) -> list[Any]:
        at = b.add(scores, b.mul(first, ir.Constant(I64, 4)))
        places = (b.add(at, ir.Constant(I64, 4 * lanes * i)) for i in range(registers))
        return [_load(b, place, vector(F32), 4) for place in places]

    def find_largest(first: Any, carried: list[Any]) -> list[Any]:
        return [larger(b, *pair) for pair in zip(scores_from(first), carried, strict=True)]

    def add_weights(first: Any, totals: list[Any]) -> list[Any]:
        weights = [_power_of_two(b, b.fsub(score, tops)) for score in scores_from(first)]
        _store_weights(b, weights, first, result)
        return [b.fadd(*pair) for pair in zip(totals, weights, strict=True)]

    largest = _over_row(b, count, constant(float("-inf")), find_largest)
    tops = splat(b, reduced(b, largest, partial(larger, b)))
    return reduced(b, _over_row(b, count, constant(0.0), add_weights), b.fadd)


def _store_weights(b: Any, weights: list[Any], first: Any, result: Any) -> None:
    """Store vectors of float32 from number `first` on, as bfloat16 where the level has it."""
    lanes, size = level().lanes, 2 if level().bfloat16 else 4
    if level().bfloat16:
        pairs = ir.VectorType(_BF16, 2 * lanes)
        name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{32 * lanes}"
        kind = ir.FunctionType(pairs, [weights[0].type] * 2)
        function = b.module.declare_intrinsic(name, (), kind)
        # The second operand is the lower half.
        weights = [
            b.call(function, (high, low))
            for low, high in zip(weights[::2], weights[1::2], strict=True)
        ]
    at = b.add(result, b.mul(first, ir.Constant(I64, size)))
    for index, stored in enumerate(weights):
        place = b.add(at, ir.Constant(I64, size * stored.type.count * index))
        b.store(stored, b.inttoptr(place, stored.type.as_pointer()), align=2)


@intrinsic
def row_softmax(typing: Any, scores: Any, count: Any, result: Any) -> Any:
    """weights at `result` = 2 ** (score − maximum); return their sum.

    `scores` are float32 [count], count a multiple of tile_columns. The weights are bfloat16 where
    the level multiplies that, and float32 otherwise; `result` may be `scores` then. No weight is
    less than 2 ** −126, that of −∞, too. NaN among the scores gives NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _emit_softmax(builder, *args)

    return types.float32(types.int64, types.int64, types.int64), generate
