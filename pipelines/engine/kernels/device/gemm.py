"""Matrix products of quantized rows (bytes) with packed weights (int8).

With x[i] ≈ step · q[i] + minimum for a row and w[j, i] ≈ scale[j] · v[j, i] for the weights,

    y[j] = scale[j] · (step · Σ q[i] v[j, i] + minimum · Σ v[j, i]) + bias[j]

The first sum is exact in int32, the second one is stored with the weights. All inputs of an output
are summed by one thread in one pass, so results do not depend on the number of threads or rows.
"""

from __future__ import annotations

import ctypes
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.amx import (
    TILE_INPUTS,
    configure_tiles,
    has_matrix_unit,
    matrix_rows,
    restore_tiles,
)
from pipelines.engine.kernels.device.dots import dot_tiles
from pipelines.engine.kernels.device.elementwise import quantize, update_argmax, update_exp_sum
from pipelines.engine.kernels.device.ir import (
    CONTRACT,
    F32,
    I32,
    Loop,
    argmax_records,
    emitted,
    f32,
    i32,
    jit,
    level,
    load,
    multiply_add,
    number,
    splat,
    store,
    vector,
)
from pipelines.engine.kernels.device.sync import barrier, thread_range, thread_scratch

_dot_1, _dot_2, _dot_4, _dot_8 = dot_tiles()

_RECORD_BYTES = ctypes.sizeof(abi.ArgmaxRecord)

# A whole tile of the matrix unit takes the time of some four rows by vector instructions.
_FEWEST_MATRIX_ROWS = 5

# Rows that are multiplied by all panels before others are: as many as stay in the cache of a core.
_CACHED_BYTES = 1 << 19

# The epilogue, what is done with the outputs: store them, add them to the result, keep the argmax
# of each row only, or that and the sum of exponentials.
STORE, ADD, ARGMAX, ARGMAX_AND_SUM = 0, 1, 2, 3


def _offsets() -> range:
    """The registers of a panel's outputs: where they begin, in bytes."""
    return range(0, 4 * abi.PANEL_OUTPUTS, 4 * level().lanes)


def _registers(b: Any, address: Any, kind: Any) -> list[Any]:
    """Load the PANEL_OUTPUTS numbers at an address."""
    return [load(b, address, vector(kind), offset) for offset in _offsets()]


def _panel(add: bool) -> Any:
    """The function that stores outputs, or adds them to what is stored."""

    @emitted(types.void, *[types.int64] * 8)
    def finish(
        b: Any, sums: Any, rows: Any, quant_ranges: Any, scales: Any, weight_sums: Any,
        biases: Any, result: Any, stride: Any,
    ) -> None:  # fmt: skip
        """The outputs of a panel, by the formula above, for one row or more.

        sums: int32 [rows, PANEL_OUTPUTS]. quant_ranges: float32 [rows, 2]. scales, weight_sums and
        biases: float32 [PANEL_OUTPUTS]. result: float32 [rows, PANEL_OUTPUTS], rows `stride` bytes
        apart; it may be `sums`. Emitted, as LLVM does not see that the buffers are apart.
        """
        columns = [_registers(b, address, F32) for address in (scales, weight_sums, biases)]
        loop = Loop(b, rows)
        of_row = b.add(sums, b.mul(loop.index, number(4 * abi.PANEL_OUTPUTS)))
        quant_range = b.add(quant_ranges, b.mul(loop.index, number(8)))
        step, minimum = (splat(b, load(b, quant_range, F32, offset)) for offset in (0, 4))
        target = b.add(result, b.mul(loop.index, stride))
        totals = zip(_offsets(), _registers(b, of_row, I32), *columns, strict=True)
        for offset, total, scale, weight, bias in totals:
            scaled = b.fmul(step, b.sitofp(total, vector(F32)), flags=CONTRACT)
            shifted = b.fadd(scaled, b.fmul(minimum, weight, flags=CONTRACT), flags=CONTRACT)
            value = multiply_add(b, scale, shifted, bias)
            if add:
                value = b.fadd(load(b, target, vector(F32), offset), value)
            store(b, value, target, offset)
        loop.finish()

    return finish


_store_panel, _add_panel = _panel(add=False), _panel(add=True)


@emitted(types.boolean, types.int64, types.float32)
def _any_above(b: Any, values: Any, limit: Any) -> Any:
    """Whether any of float32 [PANEL_OUTPUTS] at `values` is above a limit, or NaN, or the limit is
    NaN."""
    lanes, limits = level().lanes, splat(b, limit)
    above = [b.fcmp_unordered(">", value, limits) for value in _registers(b, values, F32)]
    bits = b.bitcast(reduce(b.or_, above), ir.IntType(lanes))
    return b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(lanes), 0))


@jit
def quantize_row(workspace: Any, row: Any, x: Any, count: Any, padded: Any) -> None:
    """Quantize float32 [count] at `x` as row `row` of the next product's input."""
    result = workspace.quantized + row * padded
    quantize(x, count, workspace.quant_max, result, workspace.quant_ranges + 8 * row)


@jit
def _dot_rows(
    rows: Any, left: Any, padded: Any, panel: Any, sums: Any, tile: Any, by_matrix: Any
) -> Any:
    """Dot products of the first 32, 16, 8, 4, 2 or 1 of these rows with a panel; returns how many
    rows that are.

    sums: int32 [that many rows, PANEL_OUTPUTS]. tile: the number of the tile of rows. by_matrix:
    whether the matrix unit can be used.
    """
    if has_matrix_unit() and by_matrix and rows >= _FEWEST_MATRIX_ROWS:
        return matrix_rows(rows, left, padded, panel, sums, tile)
    # The CPU's own prefetcher streams a panel that is used by one tile of rows. The second tile
    # reuses the panel from the cache, and prefetches the next one meanwhile.
    next_panel = panel if tile != 1 else panel + abi.PANEL_OUTPUTS * padded
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
def _finish_panel(
    layer: Any, row: Any, column: Any, sums: Any, quant_ranges: Any, rows: Any, result: Any,
    epilogue: Any,
) -> None:  # fmt: skip
    """Apply the epilogue to a whole panel, rows row … row + rows − 1."""
    scales, weights = layer.scales + 4 * column, layer.weight_sums + 4 * column
    biases, stride = layer.biases + 4 * column, 4 * layer.outputs
    outputs = result + row * stride + 4 * column
    if epilogue == STORE:
        _store_panel(sums, rows, quant_ranges, scales, weights, biases, outputs, stride)
        return
    if epilogue == ADD:
        _add_panel(sums, rows, quant_ranges, scales, weights, biases, outputs, stride)
        return
    width = 4 * abi.PANEL_OUTPUTS
    _store_panel(sums, rows, quant_ranges, scales, weights, biases, sums, width)
    for i in range(rows):
        values, record = sums + width * i, result + _RECORD_BYTES * (row + i)
        if _any_above(values, argmax_records(record)[0].value):
            update_argmax(values, abi.PANEL_OUTPUTS, column, record)
        if epilogue == ARGMAX_AND_SUM:
            update_exp_sum(values, abi.PANEL_OUTPUTS, record)


@jit
def _finish_part(
    layer: Any, row: Any, column: Any, sums: Any, quant_range: Any, count: Any, result: Any,
    epilogue: Any, values: Any,
) -> None:  # fmt: skip
    """Apply the epilogue to the `count` outputs of a row in the last panel. values: a buffer for
    them."""
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

    layer: a LinearLayer. epilogue: STORE or ADD. Ends with a barrier.
    """
    first, end = thread_range(workspace, count_panels(layer))
    gemm_panels(workspace, layer, rows, result, epilogue, first, end)
    barrier(workspace)


@jit
def count_panels(layer: Any) -> Any:
    """The number of panels of the weights of a LinearLayer."""
    return (layer.outputs + abi.PANEL_OUTPUTS - 1) // abi.PANEL_OUTPUTS


@jit
def gemm_panels(
    workspace: Any, layer: Any, rows: Any, result: Any, epilogue: Any, first: Any, end: Any
) -> None:
    """The outputs of panels first … end − 1, by this thread.

    For ARGMAX and ARGMAX_AND_SUM the result is ArgmaxRecord [rows].
    """
    padded = layer.padded_inputs
    config = thread_scratch(workspace) + 4 * abi.PRODUCT_FLOATS
    by_matrix = has_matrix_unit() and rows >= _FEWEST_MATRIX_ROWS and padded % TILE_INPUTS == 0
    if by_matrix:
        configure_tiles(config)
    rows_at_once = (
        max(_CACHED_BYTES // padded, abi.MATRIX_ROWS) // abi.MATRIX_ROWS * abi.MATRIX_ROWS
    )
    for row in range(0, rows, rows_at_once):
        stop = min(row + rows_at_once, rows)
        for panel in range(first, end):
            _multiply_panel(workspace, layer, row, stop, panel, result, epilogue, by_matrix)
    if by_matrix:
        restore_tiles(config)


@jit
def _multiply_panel(
    workspace: Any, layer: Any, row: Any, stop: Any, panel: Any, result: Any, epilogue: Any,
    by_matrix: Any,
) -> None:  # fmt: skip
    """The outputs of one panel for rows row … stop − 1."""
    outputs, padded = layer.outputs, layer.padded_inputs
    sums = thread_scratch(workspace)
    column = panel * abi.PANEL_OUTPUTS
    weights = layer.weights + column * padded
    tile = 0
    while row < stop:
        left = workspace.quantized + row * padded
        done = _dot_rows(stop - row, left, padded, weights, sums, tile, by_matrix)
        quant_ranges = workspace.quant_ranges + 8 * row
        if column + abi.PANEL_OUTPUTS <= outputs:
            _finish_panel(layer, row, column, sums, quant_ranges, done, result, epilogue)
        else:
            for i in range(done):
                tile_sums, quant_range = sums + 4 * i * abi.PANEL_OUTPUTS, quant_ranges + 8 * i
                _finish_part(
                    layer, row + i, column, tile_sums, quant_range, outputs - column, result,
                    epilogue, sums + 4 * abi.MATRIX_ROWS * abi.PANEL_OUTPUTS,
                )  # fmt: skip
        row += done
        tile += 1
