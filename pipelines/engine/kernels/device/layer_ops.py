"""The stages of a layer. In each, the threads divide the rows or the (lane, head) pairs.

Every stage ends with a barrier, since the next one reads what other threads have written; only
`final_norm`, the last stage of a kernel, has none (the parallel region ends with one).

`t` is the argument table (see abi.py), `rows` the number of rows of the pass, `padded` the padded
number of inputs of the product that follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.attention import (
    attend,
    attend_chunk,
    combine_chunks,
    f32_to_bf16,
    scale,
)
from pipelines.engine.kernels.device.elementwise import (
    activate,
    bf16,
    f32,
    i64,
    jit,
    layer_norm,
)
from pipelines.engine.kernels.device.gemm import quantize_row
from pipelines.engine.kernels.device.intrinsics import as_float64, prefetch
from pipelines.engine.kernels.device.thread_team import barrier, thread_range, thread_scratch

__all__ = [
    "combine_cross_attention",
    "cross_attention",
    "encoder_attention",
    "final_norm",
    "norm_and_quantize",
    "quantize_rows",
    "self_attention",
    "write_cross_kv",
]


@jit
def quantize_rows(t: Any, x: Any, count: Any, rows: Any, padded: Any, activation: Any) -> None:
    """Quantize x float32 [rows, count] as the next product's input, after an activation in place.

    activation: its index in abi.ACTIVATIONS, or −1 for none.
    """
    first, end = thread_range(rows)
    for row in range(first, end):
        if activation >= 0:
            activate(activation, x + 4 * row * count, count)
        quantize_row(t, row, x + 4 * row * count, count, padded)
    barrier()


@jit
def norm_and_quantize(t: Any, block: Any, rows: Any, padded: Any) -> None:
    """Layer norm of the states before a block, quantized as the next product's input.

    Pre-norm leaves the residual stream as it is, post-norm replaces it by the norm.
    """
    width, norm = t[abi.WIDTH], i64(t[abi.NORMS] + 16 * block)
    first, end = thread_range(rows)
    for row in range(first, end):
        x = t[abi.STATES] + 4 * row * width
        y = x
        if norm[0] != 0:
            y = thread_scratch(t) if t[abi.NORM_FIRST] != 0 else x
            layer_norm(x, y, width, norm[0], norm[1], as_float64(t[abi.EPSILON]))
        quantize_row(t, row, y, width, padded)
    barrier()


@jit
def _self_attention(t: Any, cache: Any, lane: Any, head: Any, scratch: Any) -> None:
    """Self-attention of the new tokens of one lane and head, one token after the other.

    cache: the address of this layer's tensor. scratch: float32 [head_dim] for the scaled query,
    then [room] for scores.
    """
    tokens, heads, size, room = t[abi.TOKENS], t[abi.HEADS], t[abi.HEAD_DIM], t[abi.ROOM]
    start = i64(t[abi.STARTS])[lane]
    keys = cache + 2 * ((t[abi.FIRST_SLOT] + lane) * heads + head) * room * size
    values = keys + 2 * t[abi.SLOTS] * heads * room * size
    scores = scratch + 4 * size
    for token in range(tokens):
        row = lane * tokens + token
        query, position = t[abi.QKVS] + 4 * (row * 3 * heads + head) * size, start + token
        scale(query, as_float64(t[abi.SCALE]), size, scratch)
        # The key and the value of this row follow its query at strides of [heads, head_dim].
        f32_to_bf16(query + 4 * heads * size, size, keys + 2 * position * size)
        f32_to_bf16(query + 8 * heads * size, size, values + 2 * position * size)
        output = t[abi.MIXED] + 4 * (row * heads + head) * size
        attend(scratch, keys, values, bf16, 2 * size, position + 1, size, scores, output)


@jit
def _prefetch_cache(t: Any, cache: Any, task: Any) -> None:
    """Prefetch the first cached positions of a (lane, head) pair; the CPU streams the others."""
    size, lane = t[abi.HEAD_DIM], task // t[abi.HEADS]
    byte_count = 2 * size * min(i64(t[abi.STARTS])[lane], abi.PREFETCH_POSITIONS)
    keys = cache + 2 * (t[abi.FIRST_SLOT] * t[abi.HEADS] + task) * t[abi.ROOM] * size
    values = keys + 2 * t[abi.SLOTS] * t[abi.HEADS] * t[abi.ROOM] * size
    for offset in range(0, byte_count, abi.LINE):
        prefetch(keys + offset)
        prefetch(values + offset)


@jit
def self_attention(t: Any, layer: Any) -> None:
    """Causal self-attention of the decoder: QKVS → MIXED. Writes the new tokens to the cache."""
    first, end = thread_range(t[abi.LANES] * t[abi.HEADS])
    cache, scratch = i64(t[abi.CACHE])[layer], thread_scratch(t)
    for task in range(first, end):
        if task + 1 < end:
            _prefetch_cache(t, cache, task + 1)
        _self_attention(t, cache, task // t[abi.HEADS], task % t[abi.HEADS], scratch)
    barrier()


@jit
def encoder_attention(t: Any) -> None:
    """Bidirectional self-attention of an encoder within each source: QKVS → MIXED."""
    heads, size, scratch = t[abi.HEADS], t[abi.HEAD_DIM], thread_scratch(t)
    scores = scratch + 4 * size
    starts, stride = i64(t[abi.STARTS]), 12 * heads * size
    first, end = thread_range(t[abi.LANES] * heads)
    for task in range(first, end):
        head, begin, stop = task % heads, starts[task // heads], starts[task // heads + 1]
        keys = t[abi.QKVS] + 4 * (begin * 3 * heads + heads + head) * size
        values = keys + 4 * heads * size
        for row in range(begin, stop):
            query = t[abi.QKVS] + 4 * (row * 3 * heads + head) * size
            scale(query, as_float64(t[abi.SCALE]), size, scratch)
            output = t[abi.MIXED] + 4 * (row * heads + head) * size
            attend(scratch, keys, values, f32, stride, stop - begin, size, scores, output)
    barrier()


@jit
def write_cross_kv(t: Any, layer: Any) -> None:
    """Copy a layer's keys and values, [rows, 2, heads, head_dim], to each source's own tensor,
    bfloat16 [layers, 2, heads, source length, head_dim]."""
    heads, size, starts = t[abi.HEADS], t[abi.HEAD_DIM], i64(t[abi.STARTS])
    first, end = thread_range(t[abi.LANES] * 2 * heads)
    for task in range(first, end):
        source, part = task // (2 * heads), task % (2 * heads)
        begin, stop = starts[source], starts[source + 1]
        offset = (layer * 2 * heads + part) * (stop - begin) * size
        result = i64(t[abi.CACHE])[source] + 2 * offset
        for row in range(begin, stop):
            values = t[abi.QKVS] + 4 * (row * 2 * heads + part) * size
            f32_to_bf16(values, size, result + 2 * (row - begin) * size)
    barrier()


@jit
def _cross_attention(t: Any, layer: Any, group: Any, head: Any, chunk: Any, scratch: Any) -> None:
    """Attention of all queries of a group over one chunk of its source: QUERIES → PARTIAL."""
    tokens, heads, size = t[abi.TOKENS], t[abi.HEADS], t[abi.HEAD_DIM]
    lanes = i64(t[abi.GROUP] + 24 * group)  # first lane, number of lanes, source length
    count = min(abi.CHUNK, lanes[2] - chunk * abi.CHUNK)
    if count <= 0:
        return
    source = i64(t[abi.SOURCES] + 16 * (group * t[abi.LAYERS] + layer))
    begin, scores = (head * lanes[2] + chunk * abi.CHUNK) * size, scratch + 4 * size
    for row in range(lanes[0] * tokens, (lanes[0] + lanes[1]) * tokens):
        index = row * heads + head
        query = t[abi.QUERIES] + 4 * (layer * t[abi.QUERIES_STRIDE] + index * size)
        scale(query, as_float64(t[abi.SCALE]), size, scratch)
        partial = t[abi.PARTIAL] + 4 * (index * t[abi.CHUNKS] + chunk) * (size + 2)
        if t[abi.SOURCES_BFLOAT16] != 0:
            keys, values = source[0] + 2 * begin, source[1] + 2 * begin
            attend_chunk(scratch, keys, values, bf16, 2 * size, count, size, scores, partial)
        else:
            keys, values = source[0] + 4 * begin, source[1] + 4 * begin
            attend_chunk(scratch, keys, values, f32, 4 * size, count, size, scores, partial)


@jit
def cross_attention(t: Any, layer: Any) -> None:
    """Cross-attention of the decoder over the encoded sources, a task per (group, head, chunk)."""
    heads, chunks, scratch = t[abi.HEADS], t[abi.CHUNKS], thread_scratch(t)
    first, end = thread_range(t[abi.GROUPS] * heads * chunks)
    for task in range(first, end):
        group, rest = task // (heads * chunks), task % (heads * chunks)
        _cross_attention(t, layer, group, rest // chunks, rest % chunks, scratch)
    barrier()


@jit
def combine_cross_attention(t: Any, rows: Any, padded: Any) -> None:
    """Combine the chunks of each row and head, and quantize: PARTIAL → MIXED → QUANTIZED."""
    heads, size, chunks, tokens = t[abi.HEADS], t[abi.HEAD_DIM], t[abi.CHUNKS], t[abi.TOKENS]
    groups, group = i64(t[abi.GROUP]), 0
    first, end = thread_range(rows)
    for row in range(first, end):
        while row >= (groups[3 * group] + groups[3 * group + 1]) * tokens:
            group += 1
        used = (groups[3 * group + 2] + abi.CHUNK - 1) // abi.CHUNK
        output = t[abi.MIXED] + 4 * row * heads * size
        for head in range(heads):
            partials = t[abi.PARTIAL] + 4 * (row * heads + head) * chunks * (size + 2)
            combine_chunks(partials, used, size, output + 4 * head * size)
        quantize_row(t, row, output, heads * size, padded)
    barrier()


@jit
def final_norm(t: Any, block: Any, rows: Any) -> None:
    """RESULT = the norm after the last block, NORMS[block], or a copy of the states without one."""
    width, norm = t[abi.WIDTH], i64(t[abi.NORMS] + 16 * block)
    first, end = thread_range(rows)
    for row in range(first, end):
        x, y = t[abi.STATES] + 4 * row * width, t[abi.RESULT] + 4 * row * width
        if norm[0] != 0:
            layer_norm(x, y, width, norm[0], norm[1], as_float64(t[abi.EPSILON]))
        else:
            scale(x, np.float32(1.0), width, y)
