"""The stages of a layer. In each, the threads divide the rows or the (sequence, head) pairs.

Every stage ends with a barrier, since the next one reads what other threads have written; only
`final_norm`, the last stage of a kernel, has none (the parallel region ends with one).

`args` is abi.StackArgs, `workspace` abi.Workspace, `rows` the number of rows of the pass, `padded`
the padded number of inputs of the product that follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.attn_decode import (
    attend_bf16,
    attend_chunk,
    attend_f32,
    combine_chunks,
    f32_to_bf16,
    scale,
)
from pipelines.engine.kernels.device.elementwise import activate, layer_norm
from pipelines.engine.kernels.device.gemm import quantize_row
from pipelines.engine.kernels.device.ir import (
    i64,
    jit,
    key_values,
    prefetch,
    source_groups,
)
from pipelines.engine.kernels.device.sync import barrier, thread_range, thread_scratch


@jit
def quantize_rows(
    workspace: Any, x: Any, count: Any, rows: Any, padded: Any, activation: Any
) -> None:
    """Quantize x float32 [rows, count] as the next product's input, after an activation in place.

    activation: its index in abi.ACTIVATIONS, or −1 for none.
    """
    first, end = thread_range(workspace, rows)
    for row in range(first, end):
        if activation >= 0:
            activate(activation, x + 4 * row * count, count)
        quantize_row(workspace, row, x + 4 * row * count, count, padded)
    barrier(workspace)


@jit
def norm_and_quantize(args: Any, norm: Any, rows: Any, padded: Any) -> None:
    """A layer norm of the states, quantized as the next product's input.

    Pre-norm leaves the residual stream as it is, post-norm replaces it by the norm.
    """
    d_model = args.d_model
    first, end = thread_range(args.workspace, rows)
    for row in range(first, end):
        x = args.states + 4 * row * d_model
        y = x
        if norm.weight != 0:
            y = thread_scratch(args.workspace) if args.norm_first != 0 else x
            layer_norm(x, y, d_model, norm.weight, norm.bias, args.norm_eps)
        quantize_row(args.workspace, row, y, d_model, padded)
    barrier(args.workspace)


@jit
def _self_attention(args: Any, cache: Any, sequence: Any, head: Any, scratch: Any) -> None:
    """Self-attention of the new tokens of one sequence and head, one token after the other.

    cache: the address of this layer's tensor. scratch: float32 [head_dim] for the scaled query,
    then [position_capacity + SCORES_BEYOND] for scores.
    """
    tokens, heads, size = args.new_tokens, args.heads, args.head_dim
    start = i64(args.past_lengths)[sequence]
    keys = cache + 2 * ((args.first_slot + sequence) * heads + head) * args.position_capacity * size
    values = keys + 2 * args.slot_capacity * heads * args.position_capacity * size
    scores = scratch + 4 * size
    for token in range(tokens):
        row = sequence * tokens + token
        query, position = args.qkv + 4 * (row * 3 * heads + head) * size, start + token
        scale(query, args.attention_scale, size, scratch)
        # The key and the value of this row follow its query at strides of [heads, head_dim].
        f32_to_bf16(query + 4 * heads * size, size, keys + 2 * position * size)
        f32_to_bf16(query + 8 * heads * size, size, values + 2 * position * size)
        output = args.attention_output + 4 * (row * heads + head) * size
        attend_bf16(scratch, keys, values, 2 * size, position + 1, size, scores, output)


@jit
def _prefetch_cache(args: Any, cache: Any, task: Any) -> None:
    """Prefetch the first cached positions of a task; the CPU streams the others."""
    size, sequence = args.head_dim, task // args.heads
    byte_count = 2 * size * min(i64(args.past_lengths)[sequence], abi.PREFETCH_POSITIONS)
    keys = cache + 2 * (args.first_slot * args.heads + task) * args.position_capacity * size
    values = keys + 2 * args.slot_capacity * args.heads * args.position_capacity * size
    for offset in range(0, byte_count, abi.CACHE_LINE_BYTES):
        prefetch(keys + offset)
        prefetch(values + offset)


@jit
def self_attention(args: Any, layer: Any) -> None:
    """Causal self-attention of the decoder: qkv → attention_output.

    Writes the keys and values of the new tokens to the cache. A task is a (sequence, head) pair.
    """
    first, end = thread_range(args.workspace, args.sequences * args.heads)
    cache, scratch = i64(args.kv_cache)[layer], thread_scratch(args.workspace)
    for task in range(first, end):
        if task + 1 < end:
            _prefetch_cache(args, cache, task + 1)
        _self_attention(args, cache, task // args.heads, task % args.heads, scratch)
    barrier(args.workspace)


@jit
def encoder_attention(args: Any) -> None:
    """Bidirectional self-attention of an encoder within each source: qkv → attention_output."""
    heads, size, scratch = args.heads, args.head_dim, thread_scratch(args.workspace)
    scores = scratch + 4 * size
    starts, stride = i64(args.row_offsets), 12 * heads * size
    first, end = thread_range(args.workspace, args.sequences * heads)
    for task in range(first, end):
        head, begin, stop = task % heads, starts[task // heads], starts[task // heads + 1]
        keys = args.qkv + 4 * (begin * 3 * heads + heads + head) * size
        values = keys + 4 * heads * size
        for row in range(begin, stop):
            query = args.qkv + 4 * (row * 3 * heads + head) * size
            scale(query, args.attention_scale, size, scratch)
            output = args.attention_output + 4 * (row * heads + head) * size
            attend_f32(scratch, keys, values, stride, stop - begin, size, scores, output)
    barrier(args.workspace)


@jit
def write_cross_kv(args: Any, layer: Any) -> None:
    """Copy a layer's keys and values, [rows, 2, heads, head_dim], to each source's own tensor,
    bfloat16 [layers, 2, heads, source length, head_dim]."""
    heads, size, starts = args.heads, args.head_dim, i64(args.row_offsets)
    first, end = thread_range(args.workspace, args.sequences * 2 * heads)
    for task in range(first, end):
        source, part = task // (2 * heads), task % (2 * heads)
        begin, stop = starts[source], starts[source + 1]
        offset = (layer * 2 * heads + part) * (stop - begin) * size
        result = i64(args.cross_kv)[source] + 2 * offset
        for row in range(begin, stop):
            values = args.qkv + 4 * (row * 2 * heads + part) * size
            f32_to_bf16(values, size, result + 2 * (row - begin) * size)
    barrier(args.workspace)


@jit
def _cross_attention(
    args: Any, layer: Any, group: Any, head: Any, chunk: Any, scratch: Any
) -> None:
    """Attention of all queries of a group over one chunk of its source.

    cross_queries → cross_partials
    """
    tokens, heads, size = args.new_tokens, args.heads, args.head_dim
    own = source_groups(args.source_groups)[group]
    count = min(abi.CHUNK_POSITIONS, own.source_length - chunk * abi.CHUNK_POSITIONS)
    if count <= 0:
        return
    source = key_values(args.source_kv)[group * args.layers + layer]
    begin = (head * own.source_length + chunk * abi.CHUNK_POSITIONS) * size
    scores, end = scratch + 4 * size, own.first_sequence + own.sequences
    for row in range(own.first_sequence * tokens, end * tokens):
        index = row * heads + head
        query = args.cross_queries + 4 * (layer * args.cross_queries_stride + index * size)
        scale(query, args.attention_scale, size, scratch)
        partial = args.cross_partials + 4 * (index * args.max_chunks + chunk) * (size + 2)
        keys, values = source.keys + 2 * begin, source.values + 2 * begin
        attend_chunk(scratch, keys, values, 2 * size, count, size, scores, partial)


@jit
def cross_attention(args: Any, layer: Any) -> None:
    """Cross-attention of the decoder over the encoded sources, a task per (group, head, chunk)."""
    heads, chunks, scratch = args.heads, args.max_chunks, thread_scratch(args.workspace)
    first, end = thread_range(args.workspace, args.groups * heads * chunks)
    for task in range(first, end):
        group, rest = task // (heads * chunks), task % (heads * chunks)
        _cross_attention(args, layer, group, rest // chunks, rest % chunks, scratch)
    barrier(args.workspace)


@jit
def combine_cross_attention(args: Any, rows: Any, padded: Any) -> None:
    """Combine the chunks of each row and head, and quantize: cross_partials →
    attention_output → workspace."""
    heads, size, chunks, tokens = args.heads, args.head_dim, args.max_chunks, args.new_tokens
    groups, group = source_groups(args.source_groups), 0
    first, end = thread_range(args.workspace, rows)
    for row in range(first, end):
        while row >= (groups[group].first_sequence + groups[group].sequences) * tokens:
            group += 1
        used = -(-groups[group].source_length // abi.CHUNK_POSITIONS)
        output = args.attention_output + 4 * row * heads * size
        for head in range(heads):
            partials = args.cross_partials + 4 * (row * heads + head) * chunks * (size + 2)
            combine_chunks(partials, used, size, output + 4 * head * size)
        quantize_row(args.workspace, row, output, heads * size, padded)
    barrier(args.workspace)


@jit
def final_norm(args: Any, norm: Any, rows: Any) -> None:
    """result = the norm after the last block, or a copy of the states without one."""
    d_model = args.d_model
    first, end = thread_range(args.workspace, rows)
    for row in range(first, end):
        x, y = args.states + 4 * row * d_model, args.result + 4 * row * d_model
        if norm.weight != 0:
            layer_norm(x, y, d_model, norm.weight, norm.bias, args.norm_eps)
        else:
            scale(x, np.float32(1.0), d_model, y)
