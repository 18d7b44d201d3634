"""Dot products of activations (bytes) and packed weights (int8), emitted for one instruction set.

A tile of a matrix product holds its sums in vector registers (`_emit_loop`). Each class says how:
what a register of activations holds (an operand), what one of weights holds (a column), how their
products are added to a register of sums, and which outputs the sums are in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from llvmlite import ir
from numba import types

from pipelines.engine.kernels.abi import CACHE_LINE_BYTES, PANEL_OUTPUTS, TILE_ROWS
from pipelines.engine.kernels.device.ir import (
    I8,
    I16,
    I32,
    I64,
    Loop,
    call_intrinsic,
    emit_prefetch,
    emitted,
    level,
    load,
    number,
    shuffled,
    splat,
    store,
)
from pipelines.engine.kernels.isa import IsaLevel


class Dots(Protocol):
    """The products of one instruction set.

    Attributes:
        vector: The type of a register of sums.
        operand_rows: Rows of activations in an operand.
        column_outputs: Outputs in a column.
        group_inputs: Inputs that one step multiplies.
        steps_at_once: Steps in one round of the loop.
        chains: Separate sums of each output, added at the end. With one row, an addition would
            otherwise wait for the one before it.
        one_column_at_a_time: Whether all operands of a step are loaded first, then column after
            column; otherwise all columns first, then operand after operand.
    """

    vector: Any
    operand_rows: int
    column_outputs: int
    group_inputs: int
    steps_at_once: int
    chains: int
    one_column_at_a_time: bool

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """Load the inputs of a step, the first or a later one of this round.

        Args:
            rows: Addresses of `operand_rows` rows, at the inputs of the first step of the round.
        """

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc + operand · column"""

    def outputs(self, chains: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Any]]:
        """The results of an operand: (row, number, vector of consecutive outputs).

        Args:
            chains: Of each chain, the sums of the operand and each of the columns.
        """


def dots_of(level: IsaLevel, builder: Any, rows: int) -> Dots:
    """The products for a tile of so many rows."""
    match level.instruction:
        case "usmmla":
            return _Usmmla(builder, level) if rows > 1 else _EightInputs(builder, level)
        case "sdot":
            return _Sdot(builder, level, rows)
        case "smull":
            return _Smull(builder, level, rows)
        case "vpdpbusd" | "vpmaddubsw":
            return _FourInputs(builder, level, rows)


class _Emitter:
    """What all classes share: types, and calls of LLVM's intrinsics."""

    def __init__(self, builder: Any, level: IsaLevel) -> None:
        self.builder, self.level, self.lanes = builder, level, level.lanes
        self.vector = ir.VectorType(I32, level.lanes)
        self.bytes = ir.VectorType(I8, 4 * level.lanes)
        self.group_inputs = level.group_inputs
        self.column_outputs = 4 * level.lanes // level.group_inputs
        self.operand_rows = self.steps_at_once = self.chains = 1
        self.one_column_at_a_time = level.tile_sums is not None

    def _call(self, name: str, result: Any, *args: Any) -> Any:
        return call_intrinsic(self.builder, name, result, *args)

    def _load(self, address: Any, kind: Any, offset: int = 0) -> Any:
        return load(self.builder, address, kind, offset)

    def _as_bytes(self, vector: Any) -> Any:
        return self.builder.bitcast(vector, self.bytes)

    def _shuffle(self, left: Any, right: Any, *lanes: int) -> Any:
        return shuffled(self.builder, left, right, *lanes)

    def _added(self, sums: Sequence[Any]) -> Any:
        total = sums[0]
        for other in sums[1:]:
            total = self.builder.add(total, other)
        return total

    def outputs(self, chains: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Any]]:
        """One row, whose outputs are the lanes of the sums."""
        for index, sums in enumerate(zip(*chains, strict=True)):
            yield 0, index, self._added(sums)


class _FourInputs(_Emitter):
    """x86: one row, four inputs, as many outputs as a register has int32 lanes."""

    def __init__(self, builder: Any, level: IsaLevel, rows: int) -> None:
        super().__init__(builder, level)
        self.steps_at_once = self.chains = 2 if rows == 1 else 1
        self._pairs = ir.VectorType(I16, 2 * self.lanes)

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """The same int32 (four bytes) in every lane."""
        return splat(self.builder, self._load(rows[0], I32, 4 * step))

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc + operand (uint8) · column (int8), four products per lane."""
        if self.level.instruction == "vpdpbusd":
            width = 32 * self.lanes
            name = f"llvm.x86.avx512.vpdpbusd.{width}"
            return self._call(name, self.vector, acc, operand, column)
        build = self.builder
        left, right = self._as_bytes(operand), self._as_bytes(column)
        pairs = self._call("llvm.x86.avx2.pmadd.ub.sw", self._pairs, left, right)
        ones = ir.Constant(self._pairs, [1] * (2 * self.lanes))
        return build.add(acc, self._call("llvm.x86.avx2.pmadd.wd", self.vector, pairs, ones))


class _Sdot(_Emitter):
    """ARM with dot products: as on x86, of signed bytes, two steps from one load of a row."""

    def __init__(self, builder: Any, level: IsaLevel, rows: int) -> None:
        super().__init__(builder, level)
        self.steps_at_once, self.chains = 2, 2 if rows == 1 else 1

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """The same four bytes in every lane: sdot reads them from one lane of a register."""
        both = self._load(rows[0], ir.VectorType(I32, 2))
        return self._shuffle(both, both, *[step] * self.lanes)

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc + operand (int8) · column (int8), four products per lane."""
        left, right = self._as_bytes(operand), self._as_bytes(column)
        return self._call("llvm.aarch64.neon.sdot.v4i32.v16i8", self.vector, acc, right, left)


class _Smull(_Sdot):
    """ARM without dot products. The activations are 0 … 127, so that the sum of two products fits
    in int16."""

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc + operand · column, four products per lane."""
        left, right = self._as_bytes(operand), self._as_bytes(column)
        products, words = [], ir.VectorType(I16, 8)
        for half in (range(8), range(8, 16)):
            parts = [self._shuffle(part, part, *half) for part in (right, left)]
            products.append(self._call("llvm.aarch64.neon.smull.v8i16", words, *parts))
        pairs = self._call("llvm.aarch64.neon.addp.v8i16", words, *products)
        fours = self._call("llvm.aarch64.neon.saddlp.v4i32.v8i16", self.vector, pairs)
        return self.builder.add(acc, fours)


class _EightInputs(_Emitter):
    """ARM with int8 matrix products, one row: eight inputs of two outputs, two sums for each."""

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """The same eight bytes in both halves."""
        undefined = ir.Constant(ir.VectorType(I64, 2), ir.Undefined)
        number = self._load(rows[0], I64, 8 * step)
        one = self.builder.insert_element(undefined, number, ir.Constant(I32, 0))
        return self._shuffle(one, undefined, 0, 0)

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc + operand (uint8) · column (int8), four products per lane."""
        left, right = self._as_bytes(operand), self._as_bytes(column)
        return self._call("llvm.aarch64.neon.usdot.v4i32.v16i8", self.vector, acc, left, right)

    def outputs(self, chains: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Any]]:
        """Pairs of lanes, added."""
        (sums,) = chains
        for index, pair in enumerate(zip(sums[::2], sums[1::2], strict=True)):
            yield 0, index, self._call("llvm.aarch64.neon.addp.v4i32", self.vector, *pair)


class _Usmmla(_Emitter):
    """ARM with int8 matrix products: eight inputs of two rows by two outputs."""

    def __init__(self, builder: Any, level: IsaLevel) -> None:
        super().__init__(builder, level)
        self.operand_rows = 2

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """Eight bytes of each row."""
        both = ir.Constant(ir.VectorType(I64, 2), ir.Undefined)
        for lane, row in enumerate(rows):
            number = self._load(row, I64, 8 * step)
            both = self.builder.insert_element(both, number, ir.Constant(I32, lane))
        return both

    def add(self, acc: Any, operand: Any, column: Any) -> Any:
        """acc [2, 2] + operand (uint8) [2, 8] · column (int8) [2, 8] transposed"""
        left, right = self._as_bytes(operand), self._as_bytes(column)
        return self._call("llvm.aarch64.neon.usmmla.v4i32.v16i8", self.vector, acc, left, right)

    def outputs(self, chains: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Any]]:
        """The lower halves of the sums are of the first row, the upper ones of the second."""
        (sums,) = chains
        for row, lanes in enumerate(((0, 1, 4, 5), (2, 3, 6, 7))):
            for index, pair in enumerate(zip(sums[::2], sums[1::2], strict=True)):
                yield row, index, self._shuffle(*pair, *lanes)


def _dot_tile(rows: int) -> Any:
    """The function for a tile of this many rows."""

    @emitted(types.void, *[types.int64] * 6)
    def tile(
        b: Any, left: Any, stride: Any, panel: Any, fours: Any, result: Any, next_panel: Any
    ) -> None:
        """int32 [rows, PANEL_OUTPUTS] at `result` = bytes [rows, 4 × fours] at `left` · a packed
        panel of weights. Rows are `stride` bytes apart, fours is even, next_panel is prefetched."""
        isa, args = level(), (left, stride, panel, fours, result, next_panel)
        for first in range(0, rows, isa.tile_rows):
            some = range(first, min(first + isa.tile_rows, rows))
            dots = dots_of(isa, b, len(some))
            columns = PANEL_OUTPUTS // dots.column_outputs
            if isa.tile_sums is not None:
                columns = min(columns, isa.tile_sums * dots.operand_rows // len(some))
            for begin in range(0, PANEL_OUTPUTS, columns * dots.column_outputs):
                # On ARM only tiles of 8 rows prefetch, as others are mostly given their own
                # panel (see gemm.py): with 9 to 15 rows the next one is not prefetched.
                fetches = isa.tile_sums is None or (rows, first, begin) == (TILE_ROWS, 0, 0)
                _emit_loop(b, dots, some, range(columns), begin, fetches, args)

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
    steps = fours if dots.group_inputs == 4 else b.lshr(fours, number(1))
    starts = [b.add(left, b.mul(stride, number(row))) for row in rows]
    size = dots.operand_rows
    operands = [starts[first : first + size] for first in range(0, len(rows), size)]
    zero = ir.Constant(dots.vector, [0] * dots.vector.count)
    shape = len(operands), len(columns)  # of the sums of each chain
    loop = Loop(b, steps, [zero] * (dots.chains * shape[0] * shape[1]), dots.steps_at_once)
    sums = _divided(loop.values, *shape)
    for part in range(dots.steps_at_once):
        panel_offset = b.mul(b.add(loop.index, number(part)), number(step_bytes))
        weights = b.add(panel, panel_offset)
        if fetches:
            for line in range(0, step_bytes, CACHE_LINE_BYTES):
                emit_prefetch(b, b.add(next_panel, panel_offset), line)
        chosen = part % dots.chains
        sums[chosen] = _emit_step(b, dots, sums[chosen], operands, begin, weights, loop.index, part)
    loop.finish([*chain(*chain(*sums))])
    for index, first in enumerate(range(0, len(rows), size)):
        for row, column, vector in dots.outputs([of_chain[index] for of_chain in sums]):
            output = begin + rows[first + row] * PANEL_OUTPUTS + column * dots.vector.count
            store(b, vector, result, 4 * output, align=4 * dots.vector.count)


def _divided(values: Sequence[Any], operands: int, columns: int) -> list[list[list[Any]]]:
    """values → [chains][operands][columns]"""
    rows = [[*values[at : at + columns]] for at in range(0, len(values), columns)]
    return [rows[at : at + operands] for at in range(0, len(rows), operands)]


def _emit_step(
    b: Any, dots: Dots, sums: Any, operands: Any, begin: int, weights: Any, step: Any, part: int
) -> Any:
    """sums [operands][columns] + operands · columns, for step `step` + `part` of the inputs."""

    def load_column(column: int) -> Any:
        index = begin // dots.column_outputs + column
        column_bytes = dots.group_inputs * dots.column_outputs
        return load(b, weights, dots.vector, column_bytes * index, align=column_bytes)

    def load_operand(starts: Any) -> Any:
        offset = b.mul(step, number(dots.group_inputs))
        return dots.operand([b.add(start, offset) for start in starts], part)

    if not dots.one_column_at_a_time:
        loaded = [load_column(column) for column in range(len(sums[0]))]
        added = []
        for starts, total in zip(operands, sums, strict=True):
            operand = load_operand(starts)
            pairs = zip(total, loaded, strict=True)
            added.append([dots.add(acc, operand, column) for acc, column in pairs])
        return added
    held, by_column = [load_operand(starts) for starts in operands], []
    for index, total in enumerate(zip(*sums, strict=True)):
        column = load_column(index)
        pairs = zip(total, held, strict=True)
        by_column.append([dots.add(acc, operand, column) for acc, operand in pairs])
    return [list(of_operand) for of_operand in zip(*by_column, strict=True)]


def dot_tiles() -> tuple[Any, ...]:
    """The functions for tiles of 1, 2, 4 and 8 rows."""
    return tuple(map(_dot_tile, (1, 2, 4, 8)))
