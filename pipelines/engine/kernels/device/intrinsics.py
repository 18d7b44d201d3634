"""What Numba has no words for: addresses, bit patterns, and dot products of bytes."""

from __future__ import annotations

from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import COLUMNS, LINE
from pipelines.engine.kernels.isa import ISA_LEVELS

__all__ = ["as_float", "as_float64", "dot_tiles", "prefetch", "pointer", "use_isa", "bf16_to_f32"]

_level = ISA_LEVELS["vnni512"]

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def use_isa(level: str) -> None:
    """Choose the instructions for what is compiled from now on."""
    global _level
    _level = ISA_LEVELS[level]


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An integer as an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], I8.as_pointer())

    return types.voidptr(types.int64), generate


def _from_bits(number: Any, bits: Any) -> Any:
    @intrinsic
    def convert(typing: Any, given: Any) -> Any:
        """The number with these bits."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(number))

        return number(bits), generate

    return convert


as_float = _from_bits(types.float32, types.int32)
as_float64 = _from_bits(types.float64, types.int64)


@intrinsic
def bf16_to_f32(typing: Any, number: Any) -> Any:
    """A float32 as it is, or that of which these 16 bits are the upper half: a bfloat16."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if number == types.float32:
            return args[0]
        bits = builder.shl(builder.zext(args[0], I32), ir.Constant(I32, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(number), generate


def _prefetch(builder: Any, address: Any) -> None:
    for_reading, second, data = (ir.Constant(I32, number) for number in (0, 2, 1))
    kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    ask = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
    builder.call(ask, (address, for_reading, second, data))


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Ask for the line of memory there, as far as the CPU's second cache."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, builder.inttoptr(args[0], I8.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), generate


class _Dots:
    """Builds acc + dot products of four bytes, for as many outputs as a register holds."""

    def __init__(self, builder: Any) -> None:
        self.builder, self.lanes = builder, _level.lanes
        self.vector = ir.VectorType(I32, self.lanes)
        self.bytes = ir.VectorType(I8, 4 * self.lanes)
        self._pairs = ir.VectorType(ir.IntType(16), 2 * self.lanes)
        self.zero = ir.Constant(self.vector, [0] * self.lanes)

    def _call(self, name: str, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = self.builder.module.declare_intrinsic(name, (), kind)
        return self.builder.call(function, args)

    def spread(self, number: Any) -> Any:
        null_source = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(null_source, number, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(one, null_source, self.zero)

    def add(self, acc: Any, left: Any, right: Any) -> Any:
        """acc + left (unsigned bytes) · right (signed ones)."""
        if _level.largest > 127:
            width = 32 * self.lanes
            name = f"llvm.x86.avx512.vpdpbusd.{width}"
            return self._call(name, self.vector, acc, left, right)
        build = self.builder
        left, right = build.bitcast(left, self.bytes), build.bitcast(right, self.bytes)
        pairs = self._call("llvm.x86.avx2.pmadd.ub.sw", self._pairs, left, right)
        ones = ir.Constant(self._pairs, [1] * (2 * self.lanes))
        return build.add(acc, self._call("llvm.x86.avx2.pmadd.wd", self.vector, pairs, ones))


def _dot_tile(rows: int) -> Any:
    @intrinsic
    def tile(
        typing: Any, left: Any, stride: Any, panel: Any, steps: Any, result: Any, soon: Any
    ) -> Any:
        """int32 [rows, COLUMNS] at `result` = uint8 [rows, 4 × steps] at `left`, rows `stride`
        apart, · the packed panel of weights. steps is even. soon: the panel that is to be brought
        nearer meanwhile."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            dots = _Dots(builder)
            for first in range(0, rows, _level.rows):
                _round(builder, dots, range(first, min(first + _level.rows, rows)), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return tile


def _round(b: Any, dots: _Dots, rows: range, args: Any) -> None:
    left, stride, panel, steps, result, soon = args
    vectors = COLUMNS // dots.lanes
    # Two sums for each output where there is but one row, or each addition would wait for the last.
    sums = 2 if len(rows) == 1 else 1

    def at(base: Any, offset: int, kind: Any) -> Any:
        return b.inttoptr(b.add(base, ir.Constant(I64, offset)), kind.as_pointer())

    starts = [b.add(left, b.mul(stride, ir.Constant(I64, row))) for row in rows]
    before, loop, done = b.block, b.append_basic_block("dot"), b.append_basic_block("dotted")
    b.branch(loop)
    b.position_at_end(loop)
    step = b.phi(I64)
    step.add_incoming(ir.Constant(I64, 0), before)
    totals = [[[b.phi(dots.vector) for _ in range(vectors)] for _ in rows] for _ in range(sums)]
    for phi in chain(*chain(*totals)):
        phi.add_incoming(dots.zero, before)
    found: list[list[Any]] = []
    for part, total in enumerate(totals):
        place = b.mul(b.add(step, ir.Constant(I64, part)), ir.Constant(I64, 4 * COLUMNS))
        weights = b.add(panel, place)
        for line in range(0, 4 * COLUMNS, LINE):
            _prefetch(b, at(b.add(soon, place), line, I8))
        columns = [
            b.load(at(weights, 4 * dots.lanes * v, dots.vector), align=4 * dots.lanes)
            for v in range(vectors)
        ]
        offset = b.mul(step, ir.Constant(I64, 4))
        each = []
        for start, row in zip(starts, total, strict=True):
            four = dots.spread(b.load(at(b.add(start, offset), 4 * part, I32), align=4))
            pairs = zip(row, columns, strict=True)
            each.append([dots.add(acc, four, column) for acc, column in pairs])
        found.append(each)
    after = b.add(step, ir.Constant(I64, sums))
    step.add_incoming(after, loop)
    for phis, values in zip(chain(*totals), chain(*found), strict=True):
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, steps), loop, done)
    b.position_at_end(done)
    for place, number in enumerate(rows):
        for v in range(vectors):
            whole = found[0][place][v]
            for other in found[1:]:
                whole = b.add(whole, other[place][v])
            where = at(result, 4 * (number * COLUMNS + v * dots.lanes), dots.vector)
            b.store(whole, where, align=4 * dots.lanes)


def dot_tiles() -> tuple[Any, ...]:
    """Intrinsics for 1, 2, 4 and 8 rows at once."""
    return tuple(map(_dot_tile, (1, 2, 4, 8)))
