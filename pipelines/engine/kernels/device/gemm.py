"""Matrix products of quantized rows (uint8) with packed weights (int8).

With x[i] ≈ step · q[i] + minimum for a row and w[j, i] ≈ scale[j] · v[j, i] for the weights,

    y[j] = scale[j] · (step · Σ q[i] v[j, i] + minimum · Σ v[j, i]) + bias[j]

The first sum is exact in int32, the second one is stored with the weights. All inputs of an output
are summed by one thread in one pass, so results do not depend on the number of threads or rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.elementwise import (
    f32,
    i32,
    jit,
    quantize,
    update_argmax,
    update_exp_sum,
)
from pipelines.engine.kernels.device.intrinsics import dot_tiles
from pipelines.engine.kernels.device.thread_team import barrier, thread_range, thread_scratch

__all__ = ["ADD", "ARGMAX", "ARGMAX_AND_SUM", "STORE", "gemm", "quantize_row"]

_dot_1, _dot_2, _dot_4, _dot_8 = dot_tiles()

# The epilogue, what is done with the outputs: store them, add them to the result, keep the argmax
# of each row only, or that and the sum of exponentials.
STORE, ADD, ARGMAX, ARGMAX_AND_SUM = 0, 1, 2, 3


@jit
def quantize_row(t: Any, row: Any, x: Any, count: Any, padded: Any) -> None:
    """Quantize float32 [count] at `x` as row `row` of the next product's input."""
    result, quant_range = t[abi.QUANTIZED] + row * padded, t[abi.RANGES] + 8 * row
    quantize(x, count, t[abi.LARGEST], result, quant_range)


@jit
def _dot_rows(rows: Any, left: Any, padded: Any, panel: Any, sums: Any, next_panel: Any) -> Any:
    """Dot products of the first 8, 4, 2 or 1 of these rows with a panel; returns how many rows.

    sums: int32 [that many rows, COLUMNS].
    """
    if rows >= 8:
        _dot_8(left, padded, panel, padded // 4, sums, next_panel)
        return 8
    if rows >= 4:
        _dot_4(left, padded, panel, padded // 4, sums, next_panel)
        return 4
    if rows >= 2:
        _dot_2(left, padded, panel, padded // 4, sums, next_panel)
        return 2
    _dot_1(left, padded, panel, padded // 4, sums, next_panel)
    return 1


@jit
def _dequantize(op: Any, column: Any, sums: Any, quant_range: Any, count: Any, result: Any) -> None:
    """result float32 [count] = the formula above, for outputs column … column + count − 1."""
    total, y = i32(sums), f32(result)
    scale, weight = f32(op[abi.SCALES] + 4 * column), f32(op[abi.SUMS] + 4 * column)
    bias = f32(op[abi.BIASES] + 4 * column)
    step, minimum = f32(quant_range)[0], f32(quant_range)[1]
    for i in range(count):
        y[i] = scale[i] * (step * np.float32(total[i]) + minimum * weight[i]) + bias[i]


@jit
def _add(values: Any, count: Any, result: Any) -> None:
    """result [count] += values [count]"""
    x, y = f32(values), f32(result)
    for i in range(count):
        y[i] += x[i]


@jit
def _finish(
    op: Any, row: Any, column: Any, sums: Any, quant_range: Any, count: Any, result: Any,
    epilogue: Any, values: Any,
) -> None:  # fmt: skip
    """Apply the epilogue to `count` outputs of a row. values: a buffer for them."""
    outputs = result + 4 * (row * op[abi.OUTPUTS] + column)
    if epilogue == STORE:
        _dequantize(op, column, sums, quant_range, count, outputs)
        return
    _dequantize(op, column, sums, quant_range, count, values)
    if epilogue == ADD:
        _add(values, count, outputs)
        return
    update_argmax(values, count, column, result + 16 * row)
    if epilogue == ARGMAX_AND_SUM:
        update_exp_sum(values, count, result + 16 * row)


@jit
def gemm(t: Any, op: Any, rows: Any, result: Any, epilogue: Any) -> None:
    """result [rows, outputs] = quantized rows · weights; threads divide the panels of the weights.

    op: the fields of the product. For ARGMAX and ARGMAX_AND_SUM the result is this thread's
    records [rows], 16 bytes each. Ends with a barrier.
    """
    outputs, padded = op[abi.OUTPUTS], op[abi.PADDED]
    sums = thread_scratch(t)
    values = sums + 4 * abi.ROWS * abi.COLUMNS
    first, end = thread_range((outputs + abi.COLUMNS - 1) // abi.COLUMNS)
    for panel in range(first, end):
        weights, column = op[abi.WEIGHTS] + panel * abi.COLUMNS * padded, panel * abi.COLUMNS
        count = min(abi.COLUMNS, outputs - column)
        row = 0
        while row < rows:
            # The CPU's own prefetcher streams a panel that is used by one tile of rows. The second
            # tile reuses the panel from the cache, and prefetches the next one meanwhile.
            next_panel = weights if row != abi.ROWS else weights + abi.COLUMNS * padded
            left = t[abi.QUANTIZED] + row * padded
            done = _dot_rows(rows - row, left, padded, weights, sums, next_panel)
            for i in range(done):
                tile_sums, tile_row = sums + 4 * i * abi.COLUMNS, row + i
                quant_range = t[abi.RANGES] + 8 * tile_row
                if count == abi.COLUMNS:  # a constant count, for which LLVM unrolls the loops
                    _finish(
                        op, tile_row, column, tile_sums, quant_range, abi.COLUMNS, result,
                        epilogue, values,
                    )  # fmt: skip
                else:
                    _finish(
                        op, tile_row, column, tile_sums, quant_range, count, result, epilogue,
                        values,
                    )  # fmt: skip
            row += done
    barrier()
