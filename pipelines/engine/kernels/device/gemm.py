"""Matrix products of quantized rows (uint8) with packed weights (int8).

With x[i] ≈ step · q[i] + minimum for a row and w[j, i] ≈ scale[j] · v[j, i] for the weights,

    y[j] = scale[j] · (step · Σ q[i] v[j, i] + minimum · Σ v[j, i]) + bias[j]

The first sum is exact in int32, the second one is stored with the weights. All inputs of an output
are summed by one thread in one pass, so results do not depend on the number of threads or rows.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.elementwise import quantize, update_argmax, update_exp_sum
from pipelines.engine.kernels.device.intrinsics import dot_tiles
from pipelines.engine.kernels.device.thread_team import barrier, thread_range, thread_scratch
from pipelines.engine.kernels.device.views import f32, i32, jit

__all__ = ["ADD", "ARGMAX", "ARGMAX_AND_SUM", "STORE", "gemm", "quantize_row"]

_dot_1, _dot_2, _dot_4, _dot_8 = dot_tiles()

_RECORD_BYTES = ctypes.sizeof(abi.ArgmaxRecord)

# The epilogue, what is done with the outputs: store them, add them to the result, keep the argmax
# of each row only, or that and the sum of exponentials.
STORE, ADD, ARGMAX, ARGMAX_AND_SUM = 0, 1, 2, 3


@jit
def quantize_row(workspace: Any, row: Any, x: Any, count: Any, padded: Any) -> None:
    """Quantize float32 [count] at `x` as row `row` of the next product's input."""
    result = workspace.quantized + row * padded
    quantize(x, count, workspace.quant_max, result, workspace.quant_ranges + 8 * row)


@jit
def _dot_rows(rows: Any, left: Any, padded: Any, panel: Any, sums: Any, next_panel: Any) -> Any:
    """Dot products of the first 8, 4, 2 or 1 of these rows with a panel; returns how many rows.

    sums: int32 [that many rows, PANEL_OUTPUTS].
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
def _dequantize(
    layer: Any, column: Any, sums: Any, quant_range: Any, count: Any, result: Any
) -> None:
    """result float32 [count] = the formula above, for outputs column … column + count − 1."""
    total, y = i32(sums), f32(result)
    scale, weight = f32(layer.scales + 4 * column), f32(layer.weight_sums + 4 * column)
    bias = f32(layer.biases + 4 * column)
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
    layer: Any, row: Any, column: Any, sums: Any, quant_range: Any, count: Any, result: Any,
    epilogue: Any, values: Any,
) -> None:  # fmt: skip
    """Apply the epilogue to `count` outputs of a row. values: a buffer for them."""
    outputs = result + 4 * (row * layer.outputs + column)
    if epilogue == STORE:
        _dequantize(layer, column, sums, quant_range, count, outputs)
        return
    _dequantize(layer, column, sums, quant_range, count, values)
    if epilogue == ADD:
        _add(values, count, outputs)
        return
    update_argmax(values, count, column, result + _RECORD_BYTES * row)
    if epilogue == ARGMAX_AND_SUM:
        update_exp_sum(values, count, result + _RECORD_BYTES * row)


@jit
def gemm(workspace: Any, layer: Any, rows: Any, result: Any, epilogue: Any) -> None:
    """result [rows, outputs] = quantized rows · weights; threads divide the panels of the weights.

    layer: a LinearLayer. For ARGMAX and ARGMAX_AND_SUM the result is this thread's ArgmaxRecord
    [rows]. Ends with a barrier.
    """
    outputs, padded = layer.outputs, layer.padded_inputs
    sums = thread_scratch(workspace)
    values = sums + 4 * abi.TILE_ROWS * abi.PANEL_OUTPUTS
    first, end = thread_range((outputs + abi.PANEL_OUTPUTS - 1) // abi.PANEL_OUTPUTS)
    for panel in range(first, end):
        column = panel * abi.PANEL_OUTPUTS
        weights = layer.weights + column * padded
        count = min(abi.PANEL_OUTPUTS, outputs - column)
        row = 0
        while row < rows:
            # The CPU's own prefetcher streams a panel that is used by one tile of rows. The second
            # tile reuses the panel from the cache, and prefetches the next one meanwhile.
            next_panel = weights if row != abi.TILE_ROWS else weights + abi.PANEL_OUTPUTS * padded
            left = workspace.quantized + row * padded
            done = _dot_rows(rows - row, left, padded, weights, sums, next_panel)
            for i in range(done):
                tile_sums, tile_row = sums + 4 * i * abi.PANEL_OUTPUTS, row + i
                quant_range = workspace.quant_ranges + 8 * tile_row
                if count == abi.PANEL_OUTPUTS:  # a constant count, for which LLVM unrolls the loops
                    _finish(
                        layer, tile_row, column, tile_sums, quant_range, abi.PANEL_OUTPUTS, result,
                        epilogue, values,
                    )  # fmt: skip
                else:
                    _finish(
                        layer, tile_row, column, tile_sums, quant_range, count, result, epilogue,
                        values,
                    )  # fmt: skip
            row += done
    barrier()
