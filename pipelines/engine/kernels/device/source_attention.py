"""Attention of one head over all positions of a source, as encoders of sound have it.

Scores of a few queries are computed at a time, and stay in the first cache until they are weights
(FlashAttention, without its division of the keys: the scores of 1,500 are 6 KB a query). Keys and
values are packed once per head, as `attention_tiles` reads them. Sums are float32; where the level
multiplies bfloat16, queries, keys, weights and values are rounded to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels.abi import QUERY_ROWS, SCORES_BEYOND
from pipelines.engine.kernels.device.attention import bf16_bits, f32_to_bf16, scale
from pipelines.engine.kernels.device.attention_tiles import (
    multiplies_bfloat16,
    row_softmax,
    tile_columns,
    tile_products,
)
from pipelines.engine.kernels.device.heads import HEAD_SIZE
from pipelines.engine.kernels.device.views import f32, i32, jit

__all__ = ["attend_source"]

_LOG2_E = 1.4426950408889634


@jit
def _pack_keys(args: Any, padded: Any) -> None:
    """keys → packed_keys [padded / columns, steps, columns], zeros beyond the last one."""
    columns = tile_columns()
    steps = HEAD_SIZE // 2 if multiplies_bfloat16() else HEAD_SIZE
    for position in range(padded):
        panel, column = position // columns, position % columns
        packed = i32(args.packed_keys + 4 * columns * steps * panel)
        if position >= args.positions:
            for step in range(steps):
                packed[step * columns + column] = np.int32(0)
            continue
        key = i32(args.keys + 4 * position * args.stride)
        for step in range(steps):
            if multiplies_bfloat16():
                low, high = bf16_bits(key[2 * step]), bf16_bits(key[2 * step + 1])
                packed[step * columns + column] = low | (high << np.int32(16))
            else:
                packed[step * columns + column] = key[step]


@jit
def _pack_values(args: Any, steps: Any) -> None:
    """values → packed_values [HEAD_SIZE / columns, steps, columns], a pair of positions in a step
    where the level multiplies bfloat16."""
    columns = tile_columns()
    for step in range(steps):
        position = 2 * step if multiplies_bfloat16() else step
        first = args.values + 4 * position * args.stride
        second = first + 4 * args.stride
        # The last of an odd number is paired with itself: its second weight is next to nothing.
        second = second if position + 1 < args.positions else first
        low, high = i32(first), i32(second)
        for tile in range(HEAD_SIZE // columns):
            packed = i32(args.packed_values + 4 * columns * (tile * steps + step))
            start = tile * columns
            for column in range(columns):
                if multiplies_bfloat16():
                    upper = bf16_bits(high[start + column]) << np.int32(16)
                    packed[column] = bf16_bits(low[start + column]) | upper
                else:
                    packed[column] = low[start + column]


@jit
def _pack_queries(args: Any, first: Any, row_bytes: Any) -> None:
    """QUERY_ROWS scaled queries → packed_queries; beyond the last one it is repeated.

    Their scores are logarithms to base 2.
    """
    factor = args.scale * _LOG2_E
    for row in range(QUERY_ROWS):
        position = min(first + row, args.positions - 1)
        query = args.queries + 4 * position * args.stride
        target = args.packed_queries + row * row_bytes
        if multiplies_bfloat16():
            scale(query, factor, HEAD_SIZE, args.tile)
            f32_to_bf16(args.tile, HEAD_SIZE, target)
        else:
            scale(query, factor, HEAD_SIZE, target)


@jit
def attend_source(args: Any) -> None:
    """output = softmax(scale · queries · keysᵀ) · values; `args` is abi.HeadArgs."""
    columns, positions = tile_columns(), args.positions
    padded = (positions + columns - 1) // columns * columns
    inputs = 2 if multiplies_bfloat16() else 1  # of a step
    key_steps, value_steps = HEAD_SIZE // inputs, (positions + inputs - 1) // inputs
    _pack_keys(args, padded)
    _pack_values(args, value_steps)
    score_bytes = 4 * (padded + SCORES_BEYOND)
    weights, weight_bytes = args.scores, score_bytes
    if multiplies_bfloat16():
        weights, weight_bytes = args.weights, score_bytes // 2
    for first in range(0, positions, QUERY_ROWS):
        _pack_queries(args, first, 4 * key_steps)
        for panel in range(padded // columns):
            tile_products(
                args.packed_queries, 4 * key_steps,
                args.packed_keys + 4 * columns * key_steps * panel, key_steps,
                args.scores + 4 * columns * panel, score_bytes,
            )  # fmt: skip
        shares = f32(args.shares)
        for row in range(QUERY_ROWS):
            scores = f32(args.scores + row * score_bytes)
            for position in range(positions, padded):
                scores[position] = -np.inf
            total = row_softmax(
                args.scores + row * score_bytes, padded, weights + row * weight_bytes
            )
            shares[row] = np.float32(1.0) / total
        for start in range(0, HEAD_SIZE, columns):
            tile_products(
                weights, weight_bytes,
                args.packed_values + 4 * start * value_steps, value_steps,
                args.tile, 4 * columns,
            )  # fmt: skip
            for row in range(min(QUERY_ROWS, positions - first)):
                target = args.output + 4 * ((first + row) * args.output_stride + start)
                scale(args.tile + 4 * columns * row, shares[row], columns, target)
