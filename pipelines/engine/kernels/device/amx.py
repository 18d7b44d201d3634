"""Products of 16 or 32 rows by the matrix unit of x86 CPUs (AMX), where the level has one.

The unit has eight tiles of 16 rows of 64 bytes. One instruction, `tdpbusd`, adds to 16 × 16 sums
(int32) the products of 16 rows of activations (64 uint8 of each) and of 64 inputs of 16 outputs
(int8), which is how panels of weights are packed: 4 inputs of each output side by side. The sums
are exact, so they are those of the vector instructions.

Which rows and bytes of a tile count is set for the thread (`configure_tiles`). Others use the unit,
too (oneDNN, for torch): what they have set is restored afterwards.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from pipelines.engine.kernels.abi import (
    CACHE_LINE_BYTES,
    MATRIX_ROWS,
    PANEL_OUTPUTS,
    TILE_CONFIG_BYTES,
)
from pipelines.engine.kernels.device.ir import (
    I8,
    Loop,
    address_of,
    call_intrinsic,
    emit_prefetch,
    emitted,
    i64,
    jit,
    level,
    number,
    u8,
)

_TILES, _ROWS, _ROW_BYTES = 8, 16, 64
# Inputs that one instruction multiplies.
TILE_INPUTS = _ROW_BYTES
_OUTPUTS = _ROW_BYTES // 4


@emitted(types.boolean)
def has_matrix_unit(b: Any) -> Any:
    """Whether code is compiled for a CPU with this unit: a constant."""
    return ir.Constant(ir.IntType(1), level().matrix_unit)


def _emit(b: Any, name: str, *args: Any) -> None:
    """Call one of LLVM's intrinsics for the unit. Tiles are numbers: their contents are not
    values that LLVM could move."""
    call_intrinsic(b, f"llvm.x86.{name}", ir.VoidType(), *args)


def _on_config(name: str) -> Any:
    """A function that reads or writes the configuration at an address."""

    @emitted(types.void, types.int64)
    def call(b: Any, address: Any) -> None:
        if level().matrix_unit:
            _emit(b, name, address_of(b, address))

    return call


_load_config, _store_config = _on_config("ldtilecfg"), _on_config("sttilecfg")


@jit
def configure_tiles(buffer: Any) -> None:
    """Use all rows and bytes of all tiles. buffer: 2 × TILE_CONFIG_BYTES, for `restore_tiles`."""
    config = buffer + TILE_CONFIG_BYTES
    _store_config(buffer)
    for word in range(TILE_CONFIG_BYTES // 8):
        i64(config)[word] = 0
    u8(config)[0] = 1  # the palette
    for tile in range(_TILES):
        u8(config)[16 + 2 * tile] = _ROW_BYTES
        u8(config)[48 + tile] = _ROWS
    _load_config(config)


@jit
def restore_tiles(buffer: Any) -> None:
    """Back to what was set before `configure_tiles`."""
    _load_config(buffer)


def _multiply(rows: int, fetched: range) -> Any:
    """The function for 16 or 32 rows, which must exist as memory, though not all may count.
    fetched: cache lines of the next panel that it prefetches, of those that it takes at a time."""

    @emitted(types.void, *[types.int64] * 5)
    def multiply(b: Any, left: Any, stride: Any, panel: Any, result: Any, next_panel: Any) -> None:
        """int32 [rows, PANEL_OUTPUTS] at `result` = bytes [rows, stride] at `left` · a packed panel
        of weights. The stride is a multiple of TILE_INPUTS."""
        if level().matrix_unit:
            _emit_tiles(b, rows // _ROWS, fetched, left, stride, panel, result, next_panel)

    return multiply


def _emit_tiles(
    b: Any, blocks: int, fetched: range, left: Any, stride: Any, panel: Any, result: Any,
    next_panel: Any,
) -> None:  # fmt: skip
    """Sums are in the first tiles, then come those of activations, then those of weights."""

    def tile(index: int) -> Any:
        return ir.Constant(I8, index)

    columns, width = PANEL_OUTPUTS // _OUTPUTS, number(4 * PANEL_OUTPUTS)
    sums = [
        [tile(block * columns + column) for column in range(columns)] for block in range(blocks)
    ]
    operands = [tile(4 + block) for block in range(blocks)]
    weights = [tile(6 + column) for column in range(columns)]
    for of_block in sums:
        for own in of_block:
            _emit(b, "tilezero", own)
    loop = Loop(b, stride, step=TILE_INPUTS)
    panel_at = b.mul(loop.index, number(PANEL_OUTPUTS))
    for block in range(blocks):
        row = b.mul(stride, number(block * _ROWS))
        start = b.add(b.add(left, row), loop.index)
        _emit(b, "tileloadd64", operands[block], address_of(b, start), stride)
    for column in range(columns):
        start = address_of(b, b.add(panel, panel_at), column * _ROW_BYTES)
        _emit(b, "tileloadd64", weights[column], start, width)
        for block in range(blocks):
            _emit(b, "tdpbusd", sums[block][column], operands[block], weights[column])
    for line in fetched:
        emit_prefetch(b, b.add(next_panel, panel_at), CACHE_LINE_BYTES * line)
    loop.finish()
    for block, of_block in enumerate(sums):
        for column, own in enumerate(of_block):
            offset = 4 * (block * _ROWS * PANEL_OUTPUTS + column * _OUTPUTS)
            _emit(b, "tilestored64", own, address_of(b, result, offset), width)


_LINES = TILE_INPUTS * PANEL_OUTPUTS // CACHE_LINE_BYTES
_multiply_16 = _multiply(16, range(_LINES))
_multiply_32 = _multiply(32, range(0))
_multiply_32_and_fetch = _multiply(32, range(_LINES))
_multiply_32_and_fetch_half = _multiply(32, range(_LINES // 2))
_multiply_32_and_fetch_rest = _multiply(32, range(_LINES // 2, _LINES))


@jit
def matrix_rows(rows: Any, left: Any, padded: Any, panel: Any, sums: Any, tile: Any) -> Any:
    """Products of the first 32 or 16 of these rows with a panel; returns how many rows that are.

    The next panel is prefetched meanwhile: half of it by each of the first two tiles of 32 rows, if
    there are two, since memory is not faster; all of it by tiles of 16.

    sums: int32 [32, PANEL_OUTPUTS]. tile: the number of the tile of rows.
    """
    following = panel + PANEL_OUTPUTS * padded
    if rows <= _ROWS:
        _multiply_16(left, padded, panel, sums, following)
    elif tile == 0 and rows <= MATRIX_ROWS:
        _multiply_32_and_fetch(left, padded, panel, sums, following)
    elif tile == 0:
        _multiply_32_and_fetch_half(left, padded, panel, sums, following)
    elif tile == 1:
        _multiply_32_and_fetch_rest(left, padded, panel, sums, following)
    else:
        _multiply_32(left, padded, panel, sums, following)
    return min(rows, MATRIX_ROWS)
