"""What Python calls.

Every thread of the team runs the same kernel on the same table and does its share; a barrier ends
each part. Whatever a row needs is computed in one order, whoever its neighbours are and however
many threads there are: a row's result depends on nothing but the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.device.elementwise import (
    doubles,
    floats,
    integers,
    jit,
    row_argmax,
    words,
)
from pipelines.engine.kernels.device.gemm import ADD, BEST, STORE, TOTAL, product
from pipelines.engine.kernels.device.layer_ops import (
    attend_all,
    attend_chunks,
    attend_sources,
    combine_all_chunks,
    finish_block,
    prepare_rows,
    quantise_rows,
    write_cache,
)
from pipelines.engine.kernels.device.thread_team import thread, thread_range, threads

__all__ = ["KERNELS"]


@jit
def _operation(t: Any, layer: Any, products: Any, place: Any) -> Any:
    """One of the products of a layer that has so many."""
    return integers(t[at.PROGRAM] + 8 * at.PRODUCT * (products * layer + place))


@jit
def _mixed_out(t: Any, out: Any, rows: Any) -> None:
    quantise_rows(t, t[at.MIXED], t[at.HEADS] * t[at.HEAD_DIM], rows, out[at.PADDED], -1)
    product(t, out, rows, t[at.STATES], ADD)


@jit
def _feed_forward(t: Any, block: Any, up: Any, down: Any, rows: Any) -> None:
    prepare_rows(t, block, rows, up[at.PADDED])
    product(t, up, rows, t[at.INNER], STORE)
    quantise_rows(t, t[at.INNER], t[at.FFN], rows, down[at.PADDED], t[at.ACTIVATION])
    product(t, down, rows, t[at.STATES], ADD)


@cfunc(types.void(types.voidptr))
def decoder_step(table: Any) -> None:
    """All layers of a decoder, over new tokens."""
    t = carray(table, (at.STEP,), np.int64)
    rows, ops = t[at.LANES] * t[at.TOKENS], at.PRODUCTS
    for layer in range(t[at.LAYERS]):
        qkv, query = _operation(t, layer, ops, at.QKV), _operation(t, layer, ops, at.CROSS_QUERY)
        out, cross_out = _operation(t, layer, ops, at.OUT), _operation(t, layer, ops, at.CROSS_OUT)
        up, down = _operation(t, layer, ops, at.UP), _operation(t, layer, ops, at.DOWN)

        prepare_rows(t, 3 * layer, rows, qkv[at.PADDED])
        product(t, qkv, rows, t[at.QKVS], STORE)
        attend_all(t, layer)
        _mixed_out(t, out, rows)

        prepare_rows(t, 3 * layer + 1, rows, query[at.PADDED])
        product(t, query, rows, t[at.QUERIES] + 4 * layer * t[at.QUERIES_STRIDE], STORE)
        attend_chunks(t, layer)
        combine_all_chunks(t, rows, cross_out[at.PADDED])
        product(t, cross_out, rows, t[at.STATES], ADD)

        _feed_forward(t, 3 * layer + 2, up, down, rows)
    finish_block(t, 3 * t[at.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def encoder_pass(table: Any) -> None:
    """All layers of an encoder of text, over the rows of many sources, one behind the other."""
    t = carray(table, (at.STEP,), np.int64)
    rows, ops = integers(t[at.STARTS])[t[at.LANES]], at.READING_PRODUCTS
    for layer in range(t[at.LAYERS]):
        qkv, out = _operation(t, layer, ops, at.QKV), _operation(t, layer, ops, at.OUT)
        up = _operation(t, layer, ops, at.READING_UP)
        down = _operation(t, layer, ops, at.READING_DOWN)

        prepare_rows(t, 2 * layer, rows, qkv[at.PADDED])
        product(t, qkv, rows, t[at.QKVS], STORE)
        attend_sources(t)
        _mixed_out(t, out, rows)

        _feed_forward(t, 2 * layer + 1, up, down, rows)
    finish_block(t, 2 * t[at.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def project_cross_kv(table: Any) -> None:
    """Keys and values of many sources for all layers of a decoder."""
    t = carray(table, (at.STEP,), np.int64)
    rows, padded = integers(t[at.STARTS])[t[at.LANES]], _operation(t, 0, 1, 0)[at.PADDED]
    quantise_rows(t, t[at.STATES], t[at.WIDTH], rows, padded, -1)
    for layer in range(t[at.LAYERS]):
        product(t, _operation(t, layer, 1, 0), rows, t[at.QKVS], STORE)
        write_cache(t, layer)


@cfunc(types.void(types.voidptr))
def linear(table: Any) -> None:
    """One layer by itself."""
    t = carray(table, (at.LINEAR,), np.int64)
    op, rows = t[at.LINEAR_OP :], t[at.LINEAR_ROWS]
    quantise_rows(t, t[at.LINEAR_INPUT], op[at.INPUTS], rows, op[at.PADDED], -1)
    product(t, op, rows, t[at.LINEAR_OUTPUT], STORE)


@cfunc(types.void(types.voidptr))
def argmax(table: Any) -> None:
    """The greatest output of one layer, for each row."""
    t = carray(table, (at.LINEAR,), np.int64)
    op, rows = t[at.LINEAR_OP :], t[at.LINEAR_ROWS]
    quantise_rows(t, t[at.LINEAR_INPUT], op[at.INPUTS], rows, op[at.PADDED], -1)
    own = t[at.LINEAR_FOUND] + 16 * rows * np.int64(thread())
    for row in range(rows):
        told = own + 16 * row
        floats(told)[0], words(told)[1], doubles(told)[1] = -np.inf, 0, 0.0
    product(t, op, rows, own, TOTAL if t[at.LINEAR_TOTALS] != 0 else BEST)
    first, last = thread_range(rows)
    for row in range(first, last):
        result = t[at.LINEAR_OUTPUT] + 16 * row
        row_argmax(t[at.LINEAR_FOUND] + 16 * row, np.int64(threads()), 16 * rows, result)


KERNELS = {
    "argmax": argmax,
    "linear": linear,
    "encoder_pass": encoder_pass,
    "project_cross_kv": project_cross_kv,
    "decoder_step": decoder_step,
}
