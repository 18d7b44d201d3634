"""Vectors as wide as the level's registers, for code that is emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from pipelines.engine.kernels.device.intrinsics import level

F32, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
CONTRACT = ("contract",)  # a product and a sum may be one instruction


def call_intrinsic(b: Any, name: str, result: Any, *args: Any) -> Any:
    """Call one of LLVM's intrinsics, which returns this type."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(b.module.declare_intrinsic(name, (), kind), args)


def vector(kind: Any) -> Any:
    """The type of a register of numbers of 32 bits."""
    return ir.VectorType(kind, level().lanes)


def constant(number: float) -> Any:
    """A float32 in all lanes."""
    return ir.Constant(vector(F32), [number] * level().lanes)


def splat(b: Any, number: Any) -> Any:
    """A number in all lanes."""
    kind = vector(number.type)
    undefined = ir.Constant(kind, ir.Undefined)
    one = b.insert_element(undefined, number, ir.Constant(I32, 0))
    return b.shuffle_vector(one, undefined, ir.Constant(vector(I32), [0] * level().lanes))


def shuffled(b: Any, left: Any, right: Any, *lanes: int) -> Any:
    """Some lanes of two vectors, those of the second counted on."""
    return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def larger(b: Any, left: Any, right: Any) -> Any:
    """The larger numbers of two vectors, those of `right` where `left` is NaN."""
    return b.select(b.fcmp_ordered(">", left, right), left, right)


def reduced(b: Any, vectors: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """One number of all lanes of 1, 2, 4 … vectors."""
    while len(vectors) > 1:
        vectors = [combine(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    one, lanes = vectors[0], level().lanes
    while lanes > 1:
        lanes //= 2
        low = shuffled(b, one, one, *range(lanes))
        one = combine(low, shuffled(b, one, one, *range(lanes, 2 * lanes)))
    return b.extract_element(one, ir.Constant(I32, 0))
