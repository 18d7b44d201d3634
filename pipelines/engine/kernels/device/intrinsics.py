"""LLVM intrinsics that Numba lacks: raw pointers, bit casts, prefetch, int8 dot products.

An `@intrinsic` is a function that Numba calls at compile time: `typing` gives its signature, and
`generate` emits LLVM instructions with llvmlite's IR builder.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import CACHE_LINE_BYTES, PANEL_OUTPUTS
from pipelines.engine.kernels.isa import ISA_LEVELS

__all__ = ["as_float", "dot_tiles", "prefetch", "pointer", "use_isa", "bf16_to_f32"]

_level = ISA_LEVELS["vnni512"]

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def use_isa(level: str) -> None:
    """Choose the instruction set for all code that is compiled from now on.

    Args:
        level: A key of ISA_LEVELS.
    """
    global _level
    _level = ISA_LEVELS[level]


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Convert an int64 address to a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], I8.as_pointer())

    return types.voidptr(types.int64), generate


def _bit_cast(number: Any, bits: Any) -> Any:
    """An intrinsic that reinterprets an integer type as a float type of the same size."""

    @intrinsic
    def convert(typing: Any, integer: Any) -> Any:

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(number))

        return number(bits), generate

    return convert


as_float = _bit_cast(types.float32, types.int32)


@intrinsic
def bf16_to_f32(typing: Any, number: Any) -> Any:
    """Convert the bits of a bfloat16 (uint16), the upper half of a float32; a float32 is returned
    as it is, so that one function reads both."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if number == types.float32:
            return args[0]
        bits = builder.shl(builder.zext(args[0], I32), ir.Constant(I32, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(number), generate


def _prefetch(builder: Any, address: Any) -> None:
    read, level_2, data = (ir.Constant(I32, number) for number in (0, 2, 1))
    kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
    builder.call(function, (address, read, level_2, data))


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _prefetch(builder, builder.inttoptr(args[0], I8.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), generate


class _Dots:
    """Emits acc + dot products of four bytes each, for as many outputs as a vector register has
    int32 lanes."""

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
        """A vector with the same int32 (four bytes) in every lane."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(one, undefined, self.zero)

    def add(self, acc: Any, left: Any, right: Any) -> Any:
        """acc + left (uint8) · right (int8), four products per lane."""
        if _level.quant_max > 127:
            width = 32 * self.lanes
            name = f"llvm.x86.avx512.vpdpbusd.{width}"
            return self._call(name, self.vector, acc, left, right)
        build = self.builder
        left, right = build.bitcast(left, self.bytes), build.bitcast(right, self.bytes)
        pairs = self._call("llvm.x86.avx2.pmadd.ub.sw", self._pairs, left, right)
        ones = ir.Constant(self._pairs, [1] * (2 * self.lanes))
        return build.add(acc, self._call("llvm.x86.avx2.pmadd.wd", self.vector, pairs, ones))


def _dot_tile(rows: int) -> Any:
    """The intrinsic for a tile of this many rows."""

    @intrinsic
    def tile(
        typing: Any, left: Any, stride: Any, panel: Any, steps: Any, result: Any, next_panel: Any
    ) -> Any:
        """int32 [rows, PANEL_OUTPUTS] at `result` = uint8 [rows, 4 × steps] at `left` · a packed
        panel of weights. Rows are `stride` bytes apart, steps is even, next_panel is prefetched."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            dots = _Dots(builder)
            for first in range(0, rows, _level.tile_rows):
                _emit_loop(builder, dots, range(first, min(first + _level.tile_rows, rows)), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return tile


def _emit_loop(b: Any, dots: _Dots, rows: range, args: Any) -> None:
    """Emit the loop over the inputs, four per step, for some rows of a tile."""
    left, stride, panel, steps, result, next_panel = args
    vectors = PANEL_OUTPUTS // dots.lanes
    # With one row, two sums per output: otherwise each addition waits for the previous one.
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
    sums_after: list[list[Any]] = []
    for part, total in enumerate(totals):
        panel_offset = b.mul(
            b.add(step, ir.Constant(I64, part)), ir.Constant(I64, 4 * PANEL_OUTPUTS)
        )
        weights = b.add(panel, panel_offset)
        for line in range(0, 4 * PANEL_OUTPUTS, CACHE_LINE_BYTES):
            _prefetch(b, at(b.add(next_panel, panel_offset), line, I8))
        columns = [
            b.load(at(weights, 4 * dots.lanes * v, dots.vector), align=4 * dots.lanes)
            for v in range(vectors)
        ]
        offset = b.mul(step, ir.Constant(I64, 4))
        row_sums = []
        for start, row in zip(starts, total, strict=True):
            four = dots.spread(b.load(at(b.add(start, offset), 4 * part, I32), align=4))
            pairs = zip(row, columns, strict=True)
            row_sums.append([dots.add(acc, four, column) for acc, column in pairs])
        sums_after.append(row_sums)
    after = b.add(step, ir.Constant(I64, sums))
    step.add_incoming(after, loop)
    for phis, values in zip(chain(*totals), chain(*sums_after), strict=True):
        for phi, value in zip(phis, values, strict=True):
            phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, steps), loop, done)
    b.position_at_end(done)
    for index, tile_row in enumerate(rows):
        for v in range(vectors):
            dot = sums_after[0][index][v]
            for other in sums_after[1:]:
                dot = b.add(dot, other[index][v])
            target = at(result, 4 * (tile_row * PANEL_OUTPUTS + v * dots.lanes), dots.vector)
            b.store(dot, target, align=4 * dots.lanes)


def dot_tiles() -> tuple[Any, ...]:
    """The intrinsics for tiles of 1, 2, 4 and 8 rows."""
    return tuple(map(_dot_tile, (1, 2, 4, 8)))
