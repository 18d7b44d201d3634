"""What Python calls.

Every thread of the team runs the same kernel on the same table and does its share; a barrier ends
each part. Whatever a row needs is computed in one order, whoever its neighbours are and however
many threads there are: a row's result depends on nothing but the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, types

from pipelines.engine.model.compiled import layout as at
from pipelines.engine.model.compiled.arithmetic import integers, quantise
from pipelines.engine.model.compiled.parts import (
    ADD,
    STORE,
    attend_all,
    attend_sources,
    barrier,
    end,
    look_all,
    merge_all,
    prepare,
    product,
    quantise_rows,
    scratch_of,
    share,
    thread,
)

__all__ = ["KERNELS"]


@cfunc(types.void(types.voidptr))
def step(table: Any) -> None:
    """All layers of a decoder, over new tokens."""
    t = carray(table, (at.STEP,), np.int64)
    rows, inner = t[at.LANES] * t[at.TOKENS], t[at.HEADS] * t[at.HEAD_DIM]
    quantised, ranges, scratch = t[at.QUANTISED], t[at.RANGES], scratch_of(t)
    for layer in range(t[at.LAYERS]):
        ops = t[at.PROGRAM] + 8 * layer * at.LAYER
        qkv, out = integers(ops), integers(ops + 8 * at.PRODUCT * at.OUT)
        query = integers(ops + 8 * at.PRODUCT * at.CROSS_QUERY)
        cross_out = integers(ops + 8 * at.PRODUCT * at.CROSS_OUT)
        up = integers(ops + 8 * at.PRODUCT * at.UP)
        down = integers(ops + 8 * at.PRODUCT * at.DOWN)
        queries = t[at.QUERIES] + 4 * layer * t[at.QUERIES_STRIDE]

        prepare(t, 3 * layer, rows, qkv[at.PADDED])
        product(qkv, quantised, ranges, rows, t[at.QKVS], STORE, scratch)
        attend_all(t, layer)
        quantise_rows(t, t[at.MIXED], inner, rows, out[at.PADDED], -1)
        product(out, quantised, ranges, rows, t[at.STATES], ADD, scratch)

        prepare(t, 3 * layer + 1, rows, query[at.PADDED])
        product(query, quantised, ranges, rows, queries, STORE, scratch)
        look_all(t, layer)
        merge_all(t, rows, cross_out[at.PADDED])
        product(cross_out, quantised, ranges, rows, t[at.STATES], ADD, scratch)

        prepare(t, 3 * layer + 2, rows, up[at.PADDED])
        product(up, quantised, ranges, rows, t[at.INNER], STORE, scratch)
        quantise_rows(t, t[at.INNER], t[at.FFN], rows, down[at.PADDED], t[at.ACTIVATION])
        product(down, quantised, ranges, rows, t[at.STATES], ADD, scratch)
    end(t, 3 * t[at.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def read(table: Any) -> None:
    """All layers of an encoder of text, over the rows of many sources, one behind the other."""
    t = carray(table, (at.STEP,), np.int64)
    inner, rows = t[at.HEADS] * t[at.HEAD_DIM], integers(t[at.STARTS])[t[at.LANES]]
    quantised, ranges, scratch = t[at.QUANTISED], t[at.RANGES], scratch_of(t)
    for layer in range(t[at.LAYERS]):
        ops = t[at.PROGRAM] + 8 * layer * at.READING_LAYER
        qkv, out = integers(ops), integers(ops + 8 * at.PRODUCT * at.OUT)
        up = integers(ops + 8 * at.PRODUCT * at.READING_UP)
        down = integers(ops + 8 * at.PRODUCT * at.READING_DOWN)

        prepare(t, 2 * layer, rows, qkv[at.PADDED])
        product(qkv, quantised, ranges, rows, t[at.QKVS], STORE, scratch)
        attend_sources(t)
        quantise_rows(t, t[at.MIXED], inner, rows, out[at.PADDED], -1)
        product(out, quantised, ranges, rows, t[at.STATES], ADD, scratch)

        prepare(t, 2 * layer + 1, rows, up[at.PADDED])
        product(up, quantised, ranges, rows, t[at.INNER], STORE, scratch)
        quantise_rows(t, t[at.INNER], t[at.FFN], rows, down[at.PADDED], t[at.ACTIVATION])
        product(down, quantised, ranges, rows, t[at.STATES], ADD, scratch)
    end(t, 2 * t[at.LAYERS], rows)


@cfunc(types.void(types.voidptr))
def linear(table: Any) -> None:
    """One layer by itself."""
    t = carray(table, (at.LINEAR,), np.int64)
    op = t[at.LINEAR_OP :]
    rows, inputs, ranges = t[at.LINEAR_ROWS], op[at.INPUTS], t[at.LINEAR_RANGES]
    first, last = share(rows)
    for row in range(first, last):
        x, result = (
            t[at.LINEAR_INPUT] + 4 * row * inputs,
            t[at.LINEAR_QUANTISED] + row * op[at.PADDED],
        )
        quantise(x, inputs, t[at.LINEAR_LEVELS], result, ranges + 8 * row)
    barrier()
    scratch = t[at.LINEAR_SCRATCH] + np.int64(thread()) * t[at.LINEAR_SCRATCH_STRIDE]
    result = t[at.LINEAR_OUTPUT]
    product(op, t[at.LINEAR_QUANTISED], ranges, rows, result, STORE, scratch)


KERNELS = {"linear": linear, "read": read, "step": step}
