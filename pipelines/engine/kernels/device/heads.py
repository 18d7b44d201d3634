"""Vector code for attention: heads of 64 numbers, which nearly all models have, and softmax.

Sums stay in registers. Keys and values are read four positions at a time. Positions beyond the last
one are read as the last one, with a weight of zero. Each score is the same sum in the same order,
however many positions there are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import SCORES_BEYOND
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
    shuffled,
    splat,
    vector,
)

HEAD_SIZE = 64
_POSITIONS = 4  # at a time

I16 = ir.IntType(16)


def _number(value: int) -> Any:
    return ir.Constant(I64, value)


def _row(b: Any, address: Any, bfloat16: bool) -> list[Any]:
    """HEAD_SIZE numbers at an address as float32, a register at a time."""
    lanes, loaded = level().lanes, []
    stored, size = (I16, 2) if bfloat16 else (F32, 4)
    for first in range(0, HEAD_SIZE, lanes):
        at = b.add(address, _number(size * first))
        value = b.load(b.inttoptr(at, vector(stored).as_pointer()), align=size)
        if bfloat16:  # the upper half of a float32
            bits = b.shl(b.zext(value, vector(I32)), ir.Constant(vector(I32), [16] * lanes))
            value = b.bitcast(bits, vector(F32))
        loaded.append(value)
    return loaded


def _four_sums(b: Any, vectors: list[Any]) -> Any:
    """The sums of the lanes of four vectors, as one vector of four."""
    lanes, halves = level().lanes, list(vectors)
    while lanes > 4:
        lanes //= 2
        low, high = range(lanes), range(lanes, 2 * lanes)
        halves = [b.fadd(shuffled(b, v, v, *low), shuffled(b, v, v, *high)) for v in halves]
    pairs = []
    for left, right in (halves[:2], halves[2:]):
        evens, odds = shuffled(b, left, right, 0, 4, 1, 5), shuffled(b, left, right, 2, 6, 3, 7)
        pairs.append(b.fadd(evens, odds))
    first, last = shuffled(b, *pairs, 0, 1, 4, 5), shuffled(b, *pairs, 2, 3, 6, 7)
    return b.fadd(first, last)


def _positions(b: Any, rows: Any, stride: Any, count: Any, first: Any) -> list[Any]:
    """The addresses of four positions, the last one for those beyond it."""
    last, found = b.sub(count, _number(1)), []
    for number in range(_POSITIONS):
        position = b.add(first, _number(number))
        there = b.icmp_signed("<", position, last)
        found.append(b.add(rows, b.mul(b.select(there, position, last), stride)))
    return found


class _Loop:
    """A loop over positions, some at a time, that carries values."""

    def __init__(self, b: Any, count: Any, start: list[Any], step: int = _POSITIONS) -> None:
        self._b, self._count, self._step = b, count, step
        before, self._body = b.block, b.append_basic_block("positions")
        self._done = b.append_basic_block("attended")
        b.branch(self._body)
        b.position_at_end(self._body)
        self.first = b.phi(I64)
        self.first.add_incoming(_number(0), before)
        self.values = [b.phi(value.type) for value in start]
        for phi, value in zip(self.values, start, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: list[Any]) -> None:
        """Go on with the next positions and these values, or leave."""
        b = self._b
        after = b.add(self.first, _number(self._step))
        self.first.add_incoming(after, b.block)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", after, self._count), self._body, self._done)
        b.position_at_end(self._done)


def _emit_dot_keys(
    b: Any, bfloat16: bool, query: Any, keys: Any, stride: Any, count: Any, result: Any
) -> None:
    queries = _row(b, query, bfloat16=False)
    loop, totals = _Loop(b, count, []), []
    for address in _positions(b, keys, stride, count, loop.first):
        total = None
        for number, key in zip(queries, _row(b, address, bfloat16), strict=True):
            product = b.fmul(number, key, flags=CONTRACT)
            total = product if total is None else b.fadd(total, product, flags=CONTRACT)
        totals.append(total)
    target = b.add(result, b.mul(loop.first, _number(4)))
    sums = _four_sums(b, totals)
    b.store(sums, b.inttoptr(target, sums.type.as_pointer()), align=4)
    loop.end([])


def _emit_weighted_sum(
    b: Any, bfloat16: bool, weights: Any, values: Any, stride: Any, count: Any, result: Any
) -> None:
    lanes = level().lanes
    zero = ir.Constant(vector(F32), [0.0] * lanes)
    loop = _Loop(b, count, [zero] * (HEAD_SIZE // lanes))
    products: list[Any] = []
    for number, address in enumerate(_positions(b, values, stride, count, loop.first)):
        at = b.add(weights, b.mul(b.add(loop.first, _number(number)), _number(4)))
        weight = splat(b, b.load(b.inttoptr(at, F32.as_pointer()), align=4))
        row = [b.fmul(weight, value, flags=CONTRACT) for value in _row(b, address, bfloat16)]
        # Two pairs of positions, so that an addition does not wait for the one before it.
        if number % 2:
            row = [b.fadd(*both, flags=CONTRACT) for both in zip(products.pop(), row, strict=True)]
        products.append(row)
    left, right = products
    fours = [b.fadd(*both) for both in zip(left, right, strict=True)]
    totals = [b.fadd(*both) for both in zip(loop.values, fours, strict=True)]
    loop.end(totals)
    for first, total in zip(range(0, HEAD_SIZE, lanes), totals, strict=True):
        target = b.inttoptr(b.add(result, _number(4 * first)), total.type.as_pointer())
        b.store(total, target, align=4)


def _there(b: Any, first: Any, count: Any) -> Any:
    """Which of a register's positions lie before the end."""
    lanes = level().lanes
    left = splat(b, b.sub(count, first))
    return b.icmp_signed("<", ir.Constant(vector(I64), list(range(lanes))), left)


def _exponential(b: Any, x: Any) -> Any:
    """exp(x) as `exponential` of elementwise.py, for x up to 0, or NaN."""

    def multiply_add(left: Any, right: Any, added: Any) -> Any:
        return b.fadd(b.fmul(left, right, flags=CONTRACT), added, flags=CONTRACT)

    lowest = constant(-87.0)
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    rounded = multiply_add(x, constant(1.44269504), constant(0.5))
    n = call_intrinsic(b, f"llvm.floor.v{level().lanes}f32", x.type, rounded)
    r = multiply_add(n, constant(-0.693359375), x)
    r = multiply_add(n, constant(2.12194440e-4), r)
    p = constant(_EXP[0])
    for coefficient in _EXP[1:]:
        p = multiply_add(p, r, constant(coefficient))
    p = b.fadd(multiply_add(b.fmul(p, r), r, r), constant(1.0))
    one, places = (ir.Constant(vector(I32), [number] * level().lanes) for number in (127, 23))
    power = b.shl(b.add(b.fptosi(n, vector(I32)), one), places)
    return b.fmul(p, b.bitcast(power, vector(F32)))


# The polynomial of Cephes' expf.
_EXP = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


def _scores_at(b: Any, scores: Any, first: Any) -> Any:
    address = b.add(scores, b.mul(first, _number(4)))
    return b.inttoptr(address, vector(F32).as_pointer())


def _emit_softmax(b: Any, scores: Any, count: Any, largest: Any) -> Any:
    lanes = level().lanes
    none = constant(float("-inf"))
    loop = _Loop(b, count, [none], lanes)
    there = _there(b, loop.first, count)
    found = b.select(there, b.load(_scores_at(b, scores, loop.first), align=4), none)
    best = larger(b, found, loop.values[0])
    loop.end([best])
    top = reduced(b, [best], partial(larger, b))
    b.store(top, b.inttoptr(largest, F32.as_pointer()))
    tops = splat(b, top)
    loop = _Loop(b, count, [constant(0.0)], lanes)
    there = _there(b, loop.first, count)
    place = _scores_at(b, scores, loop.first)
    weights = _exponential(b, b.fsub(b.load(place, align=4), tops))
    weights = b.select(there, weights, constant(0.0))
    b.store(weights, place, align=4)
    total = b.fadd(loop.values[0], weights)
    loop.end([total])
    return reduced(b, [total], b.fadd)


@intrinsic
def softmax_weights(typing: Any, scores: Any, count: Any, largest: Any) -> Any:
    """Replace scores [count] by exp(score − maximum), and those after them by zeros; return their
    sum, and store the maximum at `largest`.

    A whole register at a time, of at most SCORES_BEYOND. NaN among the scores gives NaN; the
    maximum is that of the others.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        assert max(level().lanes, _POSITIONS) <= SCORES_BEYOND
        return _emit_softmax(builder, *args)

    return types.float32(types.int64, types.int64, types.int64), generate


def _by_dtype(emit: Any) -> Any:
    """An intrinsic of five addresses and numbers, for float32 or bfloat16 keys and values."""

    def of(bfloat16: bool) -> Any:
        @intrinsic
        def call(typing: Any, left: Any, rows: Any, stride: Any, count: Any, result: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                emit(builder, bfloat16, *args)
                return context.get_dummy_value()

            return types.void(*[types.int64] * 5), generate

        return call

    return of(bfloat16=False), of(bfloat16=True)


# (for float32, for bfloat16). dot_keys(query, keys, stride, count, result): float32 [count] and up
# to three more. weighted_sum(weights, values, stride, count, result): float32 [HEAD_SIZE]; weights
# are zero for up to three positions beyond the last.
dot_keys, weighted_sum = _by_dtype(_emit_dot_keys), _by_dtype(_emit_weighted_sum)
