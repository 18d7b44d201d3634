"""Rows of bytes, and their products with packed weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.model.compiled import layout as at
from pipelines.engine.model.compiled.arithmetic import floats, quantise, quick, words
from pipelines.engine.model.compiled.team import barrier, scratch_of, share
from pipelines.engine.model.compiled.vectors import dot_tiles

__all__ = ["ADD", "STORE", "product", "quantise_row"]

_one, _two, _four, _eight = dot_tiles()

# What becomes of a product.
STORE, ADD = 0, 1


@quick
def quantise_row(t: Any, row: Any, x: Any, count: Any, padded: Any) -> None:
    """Numbers become row `row` of the bytes, which are `padded` each."""
    result, told = t[at.QUANTISED] + row * padded, t[at.RANGES] + 8 * row
    quantise(x, count, t[at.LARGEST], result, told)


@quick
def _dots(rows: Any, left: Any, padded: Any, weights: Any, sums: Any) -> Any:
    """int32 sums [rows, COLUMNS] of as many of these rows of bytes as go at once; how many."""
    if rows >= 8:
        _eight(left, padded, weights, padded // 4, sums)
        return 8
    if rows >= 4:
        _four(left, padded, weights, padded // 4, sums)
        return 4
    if rows >= 2:
        _two(left, padded, weights, padded // 4, sums)
        return 2
    _one(left, padded, weights, padded // 4, sums)
    return 1


@quick
def _scale(op: Any, column: Any, sums: Any, told: Any, count: Any, result: Any) -> None:
    """Sums of bytes become numbers."""
    total, y = words(sums), floats(result)
    scale, weight = floats(op[at.SCALES] + 4 * column), floats(op[at.SUMS] + 4 * column)
    bias = floats(op[at.BIASES] + 4 * column)
    step, least = floats(told)[0], floats(told)[1]
    for i in range(count):
        y[i] = scale[i] * (step * np.float32(total[i]) + least * weight[i]) + bias[i]


@quick
def _add(numbers: Any, count: Any, result: Any) -> None:
    x, y = floats(numbers), floats(result)
    for i in range(count):
        y[i] += x[i]


@quick
def _end(
    op: Any, column: Any, sums: Any, told: Any, count: Any, result: Any, ending: Any, values: Any
) -> None:
    if ending == ADD:
        _scale(op, column, sums, told, count, values)
        _add(values, count, result)
    else:
        _scale(op, column, sums, told, count, result)


@quick
def product(t: Any, op: Any, rows: Any, result: Any, ending: Any) -> None:
    """result [rows, outputs] = rows of bytes · weights. ending: STORE or ADD."""
    outputs, padded = op[at.OUTPUTS], op[at.PADDED]
    sums = scratch_of(t)
    values = sums + 4 * at.ROWS * at.COLUMNS
    first, last = share((outputs + at.COLUMNS - 1) // at.COLUMNS)
    for panel in range(first, last):
        weights, column = op[at.WEIGHTS] + panel * at.COLUMNS * padded, panel * at.COLUMNS
        count = min(at.COLUMNS, outputs - column)
        row = 0
        while row < rows:
            done = _dots(rows - row, t[at.QUANTISED] + row * padded, padded, weights, sums)
            for place in range(done):
                own, told = sums + 4 * place * at.COLUMNS, t[at.RANGES] + 8 * (row + place)
                y = result + 4 * ((row + place) * outputs + column)
                if count == at.COLUMNS:  # a constant number, which becomes a few instructions
                    _end(op, column, own, told, at.COLUMNS, y, ending, values)
                else:
                    _end(op, column, own, told, count, y, ending, values)
            row += done
    barrier()
