"""Rows of bytes, and their products with packed weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.device.elementwise import (
    better,
    floats,
    jit,
    quantise,
    sum_exponentials,
    words,
)
from pipelines.engine.kernels.device.intrinsics import dot_tiles
from pipelines.engine.kernels.device.thread_team import barrier, thread_range, thread_scratch

__all__ = ["ADD", "BEST", "STORE", "TOTAL", "product", "quantise_row"]

_one, _two, _four, _eight = dot_tiles()

# What becomes of a product: it is stored; added to what is there; or only the greatest output of
# each row is kept; or that, and the sum of all exponentials.
STORE, ADD, BEST, TOTAL = 0, 1, 2, 3


@jit
def quantise_row(t: Any, row: Any, x: Any, count: Any, padded: Any) -> None:
    """Numbers become row `row` of the bytes, which are `padded` each."""
    result, told = t[at.QUANTISED] + row * padded, t[at.RANGES] + 8 * row
    quantise(x, count, t[at.LARGEST], result, told)


@jit
def _dots(rows: Any, left: Any, padded: Any, weights: Any, sums: Any, soon: Any) -> Any:
    """int32 sums [rows, COLUMNS] of as many of these rows of bytes as go at once; how many."""
    if rows >= 8:
        _eight(left, padded, weights, padded // 4, sums, soon)
        return 8
    if rows >= 4:
        _four(left, padded, weights, padded // 4, sums, soon)
        return 4
    if rows >= 2:
        _two(left, padded, weights, padded // 4, sums, soon)
        return 2
    _one(left, padded, weights, padded // 4, sums, soon)
    return 1


@jit
def _scale(op: Any, column: Any, sums: Any, told: Any, count: Any, result: Any) -> None:
    """Sums of bytes become numbers."""
    total, y = words(sums), floats(result)
    scale, weight = floats(op[at.SCALES] + 4 * column), floats(op[at.SUMS] + 4 * column)
    bias = floats(op[at.BIASES] + 4 * column)
    step, least = floats(told)[0], floats(told)[1]
    for i in range(count):
        y[i] = scale[i] * (step * np.float32(total[i]) + least * weight[i]) + bias[i]


@jit
def _add(numbers: Any, count: Any, result: Any) -> None:
    x, y = floats(numbers), floats(result)
    for i in range(count):
        y[i] += x[i]


@jit
def _end(
    op: Any, row: Any, column: Any, sums: Any, told: Any, count: Any, result: Any, ending: Any,
    values: Any,
) -> None:  # fmt: skip
    place = result + 4 * (row * op[at.OUTPUTS] + column)
    if ending == STORE:
        _scale(op, column, sums, told, count, place)
        return
    _scale(op, column, sums, told, count, values)
    if ending == ADD:
        _add(values, count, place)
        return
    better(values, count, column, result + 16 * row)
    if ending == TOTAL:
        sum_exponentials(values, count, result + 16 * row)


@jit
def product(t: Any, op: Any, rows: Any, result: Any, ending: Any) -> None:
    """result [rows, outputs] = rows of bytes · weights. ending: as above; for BEST and TOTAL
    the result is what this thread has told of each row."""
    outputs, padded = op[at.OUTPUTS], op[at.PADDED]
    sums = thread_scratch(t)
    values = sums + 4 * at.ROWS * at.COLUMNS
    first, last = thread_range((outputs + at.COLUMNS - 1) // at.COLUMNS)
    for panel in range(first, last):
        weights, column = op[at.WEIGHTS] + panel * at.COLUMNS * padded, panel * at.COLUMNS
        count = min(at.COLUMNS, outputs - column)
        row = 0
        while row < rows:
            # Weights come as a stream to those who use them once. While others use them again, the
            # stream would stand still.
            soon = weights if row != 8 else weights + at.COLUMNS * padded
            left = t[at.QUANTISED] + row * padded
            done = _dots(rows - row, left, padded, weights, sums, soon)
            for place in range(done):
                own, at_row = sums + 4 * place * at.COLUMNS, row + place
                told = t[at.RANGES] + 8 * at_row
                if count == at.COLUMNS:  # a constant number, which becomes a few instructions
                    _end(op, at_row, column, own, told, at.COLUMNS, result, ending, values)
                else:
                    _end(op, at_row, column, own, told, count, result, ending, values)
            row += done
    barrier()
