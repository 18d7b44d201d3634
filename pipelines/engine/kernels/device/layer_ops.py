"""The parts of a pass, each of which ends when all threads have done their share."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.device.attention import (
    attend,
    attend_chunk,
    combine_chunks,
    f32_to_bf16,
    scaled,
)
from pipelines.engine.kernels.device.elementwise import (
    activate,
    floats,
    half_floats,
    integers,
    jit,
    normalise,
)
from pipelines.engine.kernels.device.gemm import quantise_row
from pipelines.engine.kernels.device.intrinsics import as_float64, prefetch
from pipelines.engine.kernels.device.thread_team import barrier, thread_range, thread_scratch

__all__ = [
    "attend_all",
    "attend_sources",
    "finish_block",
    "write_cache",
    "attend_chunks",
    "combine_all_chunks",
    "prepare_rows",
    "quantise_rows",
]


@jit
def quantise_rows(t: Any, x: Any, count: Any, rows: Any, padded: Any, kind: Any) -> None:
    """kind: the activation that they go through first, or -1."""
    first, last = thread_range(rows)
    for row in range(first, last):
        if kind >= 0:
            activate(kind, x + 4 * row * count, count)
        quantise_row(t, row, x + 4 * row * count, count, padded)
    barrier()


@jit
def prepare_rows(t: Any, place: Any, rows: Any, padded: Any) -> None:
    """Before block `place` of the pass: the states, normalised, as bytes."""
    width, norm = t[at.WIDTH], integers(t[at.NORMS] + 16 * place)
    first, last = thread_range(rows)
    for row in range(first, last):
        x = t[at.STATES] + 4 * row * width
        y = x
        if norm[0] != 0:
            y = thread_scratch(t) if t[at.NORM_FIRST] != 0 else x
            normalise(x, y, width, norm[0], norm[1], as_float64(t[at.EPSILON]))
        quantise_row(t, row, y, width, padded)
    barrier()


@jit
def _attend_row(t: Any, cache: Any, lane: Any, head: Any, scratch: Any) -> None:
    tokens, heads, size, room = t[at.TOKENS], t[at.HEADS], t[at.HEAD_DIM], t[at.ROOM]
    start = integers(t[at.STARTS])[lane]
    keys = cache + 2 * ((t[at.FIRST_SLOT] + lane) * heads + head) * room * size
    values = keys + 2 * t[at.SLOTS] * heads * room * size
    scores = scratch + 4 * size
    for token in range(tokens):
        row = lane * tokens + token
        given, place = t[at.QKVS] + 4 * (row * 3 * heads + head) * size, start + token
        scaled(given, as_float64(t[at.SCALE]), size, scratch)
        f32_to_bf16(given + 4 * heads * size, size, keys + 2 * place * size)
        f32_to_bf16(given + 8 * heads * size, size, values + 2 * place * size)
        mixed = t[at.MIXED] + 4 * (row * heads + head) * size
        attend(scratch, keys, values, half_floats, 2 * size, place + 1, size, scores, mixed)


@jit
def _prefetch_next(t: Any, cache: Any, task: Any) -> None:
    """Ask for what a lane and a head have read: its beginning, whose end comes by itself."""
    size, lane = t[at.HEAD_DIM], task // t[at.HEADS]
    bytes_read = 2 * size * min(integers(t[at.STARTS])[lane], at.SOON)
    keys = cache + 2 * (t[at.FIRST_SLOT] * t[at.HEADS] + task) * t[at.ROOM] * size
    values = keys + 2 * t[at.SLOTS] * t[at.HEADS] * t[at.ROOM] * size
    for place in range(0, bytes_read, at.LINE):
        prefetch(keys + place)
        prefetch(values + place)


@jit
def attend_all(t: Any, layer: Any) -> None:
    """Store keys and values of the new tokens, and let them look at all up to themselves."""
    first, last = thread_range(t[at.LANES] * t[at.HEADS])
    cache, scratch = integers(t[at.CACHE])[layer], thread_scratch(t)
    for task in range(first, last):
        if task + 1 < last:
            _prefetch_next(t, cache, task + 1)
        _attend_row(t, cache, task // t[at.HEADS], task % t[at.HEADS], scratch)
    barrier()


@jit
def attend_sources(t: Any) -> None:
    """Let all tokens of a source look at each other."""
    heads, size, scratch = t[at.HEADS], t[at.HEAD_DIM], thread_scratch(t)
    scores = scratch + 4 * size
    starts, apart = integers(t[at.STARTS]), 12 * heads * size
    first, last = thread_range(t[at.LANES] * heads)
    for task in range(first, last):
        head, begin, stop = task % heads, starts[task // heads], starts[task // heads + 1]
        keys = t[at.QKVS] + 4 * (begin * 3 * heads + heads + head) * size
        values = keys + 4 * heads * size
        for row in range(begin, stop):
            query = t[at.QKVS] + 4 * (row * 3 * heads + head) * size
            scaled(query, as_float64(t[at.SCALE]), size, scratch)
            mixed = t[at.MIXED] + 4 * (row * heads + head) * size
            attend(scratch, keys, values, floats, apart, stop - begin, size, scores, mixed)
    barrier()


@jit
def write_cache(t: Any, layer: Any) -> None:
    """Put the keys and values of a layer's rows where each source has its own."""
    heads, size, starts = t[at.HEADS], t[at.HEAD_DIM], integers(t[at.STARTS])
    first, last = thread_range(t[at.LANES] * 2 * heads)
    for task in range(first, last):
        source, part = task // (2 * heads), task % (2 * heads)
        begin, stop = starts[source], starts[source + 1]
        place = (layer * 2 * heads + part) * (stop - begin) * size
        result = integers(t[at.CACHE])[source] + 2 * place
        for row in range(begin, stop):
            given = t[at.QKVS] + 4 * (row * 2 * heads + part) * size
            f32_to_bf16(given, size, result + 2 * (row - begin) * size)
    barrier()


@jit
def _attend_chunk(t: Any, layer: Any, group: Any, head: Any, chunk: Any, scratch: Any) -> None:
    tokens, heads, size = t[at.TOKENS], t[at.HEADS], t[at.HEAD_DIM]
    told = integers(t[at.GROUP] + 24 * group)
    count = min(at.CHUNK, told[2] - chunk * at.CHUNK)
    if count <= 0:
        return
    source = integers(t[at.SOURCES] + 16 * (group * t[at.LAYERS] + layer))
    begin, scores = (head * told[2] + chunk * at.CHUNK) * size, scratch + 4 * size
    for row in range(told[0] * tokens, (told[0] + told[1]) * tokens):
        place = row * heads + head
        query = t[at.QUERIES] + 4 * (layer * t[at.QUERIES_STRIDE] + place * size)
        scaled(query, as_float64(t[at.SCALE]), size, scratch)
        found = t[at.PARTIAL] + 4 * (place * t[at.CHUNKS] + chunk) * (size + 2)
        if t[at.SOURCES_BFLOAT16] != 0:
            keys, values = source[0] + 2 * begin, source[1] + 2 * begin
            attend_chunk(scratch, keys, values, half_floats, 2 * size, count, size, scores, found)
        else:
            keys, values = source[0] + 4 * begin, source[1] + 4 * begin
            attend_chunk(scratch, keys, values, floats, 4 * size, count, size, scores, found)


@jit
def attend_chunks(t: Any, layer: Any) -> None:
    """Attention over the sources, each in pieces."""
    heads, chunks, scratch = t[at.HEADS], t[at.CHUNKS], thread_scratch(t)
    first, last = thread_range(t[at.GROUPS] * heads * chunks)
    for task in range(first, last):
        group, rest = task // (heads * chunks), task % (heads * chunks)
        _attend_chunk(t, layer, group, rest // chunks, rest % chunks, scratch)
    barrier()


@jit
def combine_all_chunks(t: Any, rows: Any, padded: Any) -> None:
    """What the pieces have found becomes one row of bytes for each token."""
    heads, size, chunks, tokens = t[at.HEADS], t[at.HEAD_DIM], t[at.CHUNKS], t[at.TOKENS]
    groups, group = integers(t[at.GROUP]), 0
    first, last = thread_range(rows)
    for row in range(first, last):
        while row >= (groups[3 * group] + groups[3 * group + 1]) * tokens:
            group += 1
        pieces = (groups[3 * group + 2] + at.CHUNK - 1) // at.CHUNK
        mixed = t[at.MIXED] + 4 * row * heads * size
        for head in range(heads):
            found = t[at.PARTIAL] + 4 * (row * heads + head) * chunks * (size + 2)
            combine_chunks(found, pieces, size, mixed + 4 * head * size)
        quantise_row(t, row, mixed, heads * size, padded)
    barrier()


@jit
def finish_block(t: Any, place: Any, rows: Any) -> None:
    """The result, by the norm before block `place`, where there is none."""
    width, norm = t[at.WIDTH], integers(t[at.NORMS] + 16 * place)
    first, last = thread_range(rows)
    for row in range(first, last):
        x, y = t[at.STATES] + 4 * row * width, t[at.RESULT] + 4 * row * width
        if norm[0] != 0:
            normalise(x, y, width, norm[0], norm[1], as_float64(t[at.EPSILON]))
        else:
            scaled(x, np.float32(1.0), width, y)
