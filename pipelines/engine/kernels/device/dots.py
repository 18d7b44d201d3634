"""Dot products of activations (bytes) and packed weights (int8), emitted for one instruction set.

A tile of a matrix product holds its sums in vector registers (`_emit_loop` in intrinsics.py). Each
class here says how: what a register of activations holds (an operand), what one of weights holds (a
column), how their products are added to a register of sums, and which outputs the sums are in the
end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from llvmlite import ir

from pipelines.engine.kernels.isa import IsaLevel

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


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
            return _Pairs(builder, level) if rows > 1 else _EightInputs(builder, level)
        case "sdot":
            return _Signed(builder, level, rows)
        case "smull":
            return _Widened(builder, level, rows)
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
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = self.builder.module.declare_intrinsic(name, (), kind)
        return self.builder.call(function, args)

    def _load(self, address: Any, kind: Any, offset: int = 0) -> Any:
        build = self.builder
        at = build.inttoptr(build.add(address, ir.Constant(I64, offset)), kind.as_pointer())
        return build.load(at, align=4)

    def _as_bytes(self, vector: Any) -> Any:
        return self.builder.bitcast(vector, self.bytes)

    def _shuffle(self, left: Any, right: Any, *lanes: int) -> Any:
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
        return self.builder.shuffle_vector(left, right, mask)

    def _added(self, sums: Sequence[Any]) -> Any:
        total = sums[0]
        for other in sums[1:]:
            total = self.builder.add(total, other)
        return total

    def outputs(self, chains: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int, Any]]:
        """One row, whose outputs are the lanes of the sums."""
        for number, sums in enumerate(zip(*chains, strict=True)):
            yield 0, number, self._added(sums)


class _FourInputs(_Emitter):
    """x86: one row, four inputs, as many outputs as a register has int32 lanes."""

    def __init__(self, builder: Any, level: IsaLevel, rows: int) -> None:
        super().__init__(builder, level)
        self.steps_at_once = self.chains = 2 if rows == 1 else 1
        self._pairs = ir.VectorType(I16, 2 * self.lanes)

    def operand(self, rows: Sequence[Any], step: int) -> Any:
        """The same int32 (four bytes) in every lane."""
        number = self._load(rows[0], I32, 4 * step)
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(I32, 0))
        zero = ir.Constant(self.vector, [0] * self.lanes)
        return self.builder.shuffle_vector(one, undefined, zero)

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


class _Signed(_Emitter):
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


class _Widened(_Signed):
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
        for number, pair in enumerate(zip(sums[::2], sums[1::2], strict=True)):
            yield 0, number, self._call("llvm.aarch64.neon.addp.v4i32", self.vector, *pair)


class _Pairs(_Emitter):
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
            for number, pair in enumerate(zip(sums[::2], sums[1::2], strict=True)):
                yield row, number, self._shuffle(*pair, *lanes)
