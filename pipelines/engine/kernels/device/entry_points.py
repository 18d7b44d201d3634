"""The kernels that Python calls: C functions of one argument, the address of a table (see abi.py).

All threads of a team run the same kernel on the same table; each computes its share of every stage,
and a barrier ends each stage. A row is always computed in the same order of operations, so its
result depends neither on the other rows of the batch nor on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.elementwise import f32, f64, i32, i64, jit, merge_argmax
from pipelines.engine.kernels.device.gemm import ADD, ARGMAX, ARGMAX_AND_SUM, STORE, gemm
from pipelines.engine.kernels.device.layer_ops import (
    combine_cross_attention,
    cross_attention,
    encoder_attention,
    final_norm,
    norm_and_quantize,
    quantize_rows,
    self_attention,
    write_cross_kv,
)
from pipelines.engine.kernels.device.thread_team import thread_count, thread_index, thread_range

__all__ = ["KERNELS"]


@jit
def _product(t: Any, layer: Any, products: Any, index: Any) -> Any:
    """The fields of product `index` of a layer; each layer has `products` of them."""
    return i64(t[abi.PROGRAM] + 8 * abi.PRODUCT * (products * layer + index))


@jit
def _attention_output(t: Any, out: Any, rows: Any) -> None:
    """STATES += output projection of MIXED."""
    quantize_rows(t, t[abi.MIXED], t[abi.HEADS] * t[abi.HEAD_DIM], rows, out[abi.PADDED], -1)
    gemm(t, out, rows, t[abi.STATES], ADD)


@jit
def _feed_forward(t: Any, block: Any, up: Any, down: Any, rows: Any) -> None:
    """STATES += down · activation(up · norm(STATES))."""
    norm_and_quantize(t, block, rows, up[abi.PADDED])
    gemm(t, up, rows, t[abi.INNER], STORE)
    quantize_rows(t, t[abi.INNER], t[abi.FFN], rows, down[abi.PADDED], t[abi.ACTIVATION])
    gemm(t, down, rows, t[abi.STATES], ADD)


@cfunc(types.void(types.voidptr))
def decoder_step(table: Any) -> None:
    """All layers of a decoder, for the new tokens of all lanes."""
    t = carray(table, (abi.STEP,), np.int64)
    rows, ops = t[abi.LANES] * t[abi.TOKENS], abi.PRODUCTS
    for layer in range(t[abi.LAYERS]):
        qkv, query = _product(t, layer, ops, abi.QKV), _product(t, layer, ops, abi.CROSS_QUERY)
        out, cross_out = _product(t, layer, ops, abi.OUT), _product(t, layer, ops, abi.CROSS_OUT)
        up, down = _product(t, layer, ops, abi.UP), _product(t, layer, ops, abi.DOWN)

        norm_and_quantize(t, 3 * layer, rows, qkv[abi.PADDED])
        gemm(t, qkv, rows, t[abi.QKVS], STORE)
        self_attention(t, layer)
        _attention_output(t, out, rows)

        norm_and_quantize(t, 3 * layer + 1, rows, query[abi.PADDED])
        gemm(t, query, rows, t[abi.QUERIES] + 4 * layer * t[abi.QUERIES_STRIDE], STORE)
        cross_attention(t, layer)
        combine_cross_attention(t, rows, cross_out[abi.PADDED])
        gemm(t, cross_out, rows, t[abi.STATES], ADD)

        _feed_forward(t, 3 * layer + 2, up, down, rows)
    final_norm(t, 3 * t[abi.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def encoder_pass(table: Any) -> None:
    """All layers of a text encoder, for the rows of many sources, one source after the other."""
    t = carray(table, (abi.STEP,), np.int64)
    rows, ops = i64(t[abi.STARTS])[t[abi.LANES]], abi.ENCODER_PRODUCTS
    for layer in range(t[abi.LAYERS]):
        qkv, out = _product(t, layer, ops, abi.QKV), _product(t, layer, ops, abi.OUT)
        up = _product(t, layer, ops, abi.ENCODER_UP)
        down = _product(t, layer, ops, abi.ENCODER_DOWN)

        norm_and_quantize(t, 2 * layer, rows, qkv[abi.PADDED])
        gemm(t, qkv, rows, t[abi.QKVS], STORE)
        encoder_attention(t)
        _attention_output(t, out, rows)

        _feed_forward(t, 2 * layer + 1, up, down, rows)
    final_norm(t, 2 * t[abi.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def project_cross_kv(table: Any) -> None:
    """Cross-attention keys and values of many sources, for all layers of a decoder."""
    t = carray(table, (abi.STEP,), np.int64)
    rows, padded = i64(t[abi.STARTS])[t[abi.LANES]], _product(t, 0, 1, 0)[abi.PADDED]
    quantize_rows(t, t[abi.STATES], t[abi.WIDTH], rows, padded, -1)
    for layer in range(t[abi.LAYERS]):
        gemm(t, _product(t, layer, 1, 0), rows, t[abi.QKVS], STORE)
        write_cross_kv(t, layer)


@cfunc(types.void(types.voidptr))
def linear(table: Any) -> None:
    """One linear layer."""
    t = carray(table, (abi.LINEAR,), np.int64)
    op, rows = t[abi.LINEAR_OP :], t[abi.LINEAR_ROWS]
    quantize_rows(t, t[abi.LINEAR_INPUT], op[abi.INPUTS], rows, op[abi.PADDED], -1)
    gemm(t, op, rows, t[abi.LINEAR_OUTPUT], STORE)


@cfunc(types.void(types.voidptr))
def argmax(table: Any) -> None:
    """The largest output of one linear layer for each row; the outputs are not stored."""
    t = carray(table, (abi.LINEAR,), np.int64)
    op, rows = t[abi.LINEAR_OP :], t[abi.LINEAR_ROWS]
    quantize_rows(t, t[abi.LINEAR_INPUT], op[abi.INPUTS], rows, op[abi.PADDED], -1)
    records = t[abi.LINEAR_FOUND] + 16 * rows * np.int64(thread_index())
    for row in range(rows):
        record = records + 16 * row
        f32(record)[0], i32(record)[1], f64(record)[1] = -np.inf, 0, 0.0
    gemm(t, op, rows, records, ARGMAX_AND_SUM if t[abi.LINEAR_TOTALS] != 0 else ARGMAX)
    first, end = thread_range(rows)
    for row in range(first, end):
        result = t[abi.LINEAR_OUTPUT] + 16 * row
        merge_argmax(t[abi.LINEAR_FOUND] + 16 * row, np.int64(thread_count()), 16 * rows, result)


KERNELS = {
    "argmax": argmax,
    "linear": linear,
    "encoder_pass": encoder_pass,
    "project_cross_kv": project_cross_kv,
    "decoder_step": decoder_step,
}
