"""LLVM intrinsics that Numba lacks: raw pointers, bit casts, prefetch, tiles of int8 products.

An `@intrinsic` is a function that Numba calls at compile time: `typing` gives its signature, and
`generate` emits LLVM instructions with llvmlite's IR builder.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import CACHE_LINE_BYTES, PANEL_OUTPUTS, TILE_ROWS
from pipelines.engine.kernels.device.dots import Dots, dots_of
from pipelines.engine.kernels.isa import ISA_LEVELS, IsaLevel

_level = ISA_LEVELS["vnni512"]

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def use_isa(name: str) -> None:
    """Choose the instruction set for all code that is compiled from now on.

    Args:
        name: A key of ISA_LEVELS.
    """
    global _level
    _level = ISA_LEVELS[name]


def level() -> IsaLevel:
    """The instruction set that was chosen."""
    return _level


def address_of(builder: Any, number: Any) -> Any:
    """An int64 address as a pointer."""
    return builder.inttoptr(number, I8.as_pointer())


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Convert an int64 address to a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return address_of(builder, args[0])

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


def prefetch_line(builder: Any, address: Any) -> None:
    """Emit a prefetch of the cache line at a pointer, into the second-level cache."""
    read, level_2, data = (ir.Constant(I32, number) for number in (0, 2, 1))
    kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
    builder.call(function, (address, read, level_2, data))


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        prefetch_line(builder, address_of(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def stored_byte(typing: Any, number: Any) -> Any:
    """A quantized activation (uint8) as it is stored: less 128 where bytes are signed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.xor(args[0], ir.Constant(I8, 128)) if _level.signed else args[0]

    return types.uint8(types.uint8), generate


@intrinsic
def stored_minimum(typing: Any, minimum: Any, step: Any) -> Any:
    """The number that the stored byte 0 stands for: 128 steps above the minimum where bytes are
    signed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _level.signed:
            return args[0]
        steps = builder.fmul(args[1], ir.Constant(ir.FloatType(), 128.0))
        return builder.fadd(args[0], steps)

    return types.float32(types.float32, types.float32), generate


def _dot_tile(rows: int) -> Any:
    """The intrinsic for a tile of this many rows."""

    @intrinsic
    def tile(
        typing: Any, left: Any, stride: Any, panel: Any, steps: Any, result: Any, next_panel: Any
    ) -> Any:
        """int32 [rows, PANEL_OUTPUTS] at `result` = bytes [rows, 4 × steps] at `left` · a packed
        panel of weights. Rows are `stride` bytes apart, steps is even, next_panel is prefetched."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for first in range(0, rows, _level.tile_rows):
                some = range(first, min(first + _level.tile_rows, rows))
                dots = dots_of(_level, builder, len(some))
                columns = PANEL_OUTPUTS // dots.column_outputs
                if _level.tile_sums is not None:
                    columns = min(columns, _level.tile_sums * dots.operand_rows // len(some))
                for begin in range(0, PANEL_OUTPUTS, columns * dots.column_outputs):
                    # On ARM only tiles of 8 rows prefetch, as others are mostly given their own
                    # panel (see gemm.py): with 9 to 15 rows the next one is not prefetched.
                    fetches = _level.tile_sums is None or (rows, first, begin) == (TILE_ROWS, 0, 0)
                    _emit_loop(builder, dots, some, range(columns), begin, fetches, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return tile


def _emit_loop(
    b: Any, dots: Dots, rows: range, columns: range, begin: int, fetches: bool, args: Any
) -> None:
    """Emit the loop over the inputs, a group of them per step, for a part of a tile.

    Args:
        rows: Of the tile.
        columns: Registers of weights in a step, from output `begin` of the panel on.
        fetches: Whether to prefetch next_panel.
    """
    left, stride, panel, fours, result, next_panel = args
    step_bytes = dots.group_inputs * PANEL_OUTPUTS
    steps = fours if dots.group_inputs == 4 else b.lshr(fours, ir.Constant(I64, 1))
    starts = [b.add(left, b.mul(stride, ir.Constant(I64, row))) for row in rows]
    size = dots.operand_rows
    operands = [starts[first : first + size] for first in range(0, len(rows), size)]
    zero = ir.Constant(dots.vector, [0] * dots.vector.count)
    before, loop, done = b.block, b.append_basic_block("dot"), b.append_basic_block("dotted")
    b.branch(loop)
    b.position_at_end(loop)
    step = b.phi(I64)
    step.add_incoming(ir.Constant(I64, 0), before)
    # [chains][operands][columns]
    totals = [[[b.phi(dots.vector) for _ in columns] for _ in operands] for _ in range(dots.chains)]
    for phi in chain(*chain(*totals)):
        phi.add_incoming(zero, before)
    sums = list(totals)
    for part in range(dots.steps_at_once):
        panel_offset = b.mul(b.add(step, ir.Constant(I64, part)), ir.Constant(I64, step_bytes))
        weights = b.add(panel, panel_offset)
        if fetches:
            for line in range(0, step_bytes, CACHE_LINE_BYTES):
                prefetch_line(b, _at(b, b.add(next_panel, panel_offset), line, I8))
        number = part % dots.chains
        sums[number] = _emit_step(b, dots, sums[number], operands, begin, weights, step, part)
    after = b.add(step, ir.Constant(I64, dots.steps_at_once))
    step.add_incoming(after, loop)
    for phi, value in zip(chain(*chain(*totals)), chain(*chain(*sums)), strict=True):
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", after, steps), loop, done)
    b.position_at_end(done)
    for index, first in enumerate(range(0, len(rows), size)):
        for row, number, vector in dots.outputs([of_chain[index] for of_chain in sums]):
            output = begin + rows[first + row] * PANEL_OUTPUTS + number * dots.vector.count
            target = _at(b, result, 4 * output, dots.vector)
            b.store(vector, target, align=4 * dots.vector.count)


def _emit_step(
    b: Any, dots: Dots, sums: Any, operands: Any, begin: int, weights: Any, step: Any, part: int
) -> Any:
    """sums [operands][columns] + operands · columns, for step `step` + `part` of the inputs."""

    def load_column(number: int) -> Any:
        index = begin // dots.column_outputs + number
        column_bytes = dots.group_inputs * dots.column_outputs
        address = _at(b, weights, column_bytes * index, dots.vector)
        return b.load(address, align=column_bytes)

    def load_operand(starts: Any) -> Any:
        offset = b.mul(step, ir.Constant(I64, dots.group_inputs))
        return dots.operand([b.add(start, offset) for start in starts], part)

    if not dots.one_column_at_a_time:
        loaded = [load_column(number) for number in range(len(sums[0]))]
        added = []
        for starts, total in zip(operands, sums, strict=True):
            operand = load_operand(starts)
            pairs = zip(total, loaded, strict=True)
            added.append([dots.add(acc, operand, column) for acc, column in pairs])
        return added
    held, by_column = [load_operand(starts) for starts in operands], []
    for number, total in enumerate(zip(*sums, strict=True)):
        column = load_column(number)
        pairs = zip(total, held, strict=True)
        by_column.append([dots.add(acc, operand, column) for acc, operand in pairs])
    return [list(of_operand) for of_operand in zip(*by_column, strict=True)]


def _at(b: Any, base: Any, offset: int, kind: Any) -> Any:
    """The pointer to a value of this type, so many bytes after an address."""
    return b.inttoptr(b.add(base, ir.Constant(I64, offset)), kind.as_pointer())


def dot_tiles() -> tuple[Any, ...]:
    """The intrinsics for tiles of 1, 2, 4 and 8 rows."""
    return tuple(map(_dot_tile, (1, 2, 4, 8)))
