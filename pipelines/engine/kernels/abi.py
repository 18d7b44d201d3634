"""The tables of numbers through which Python tells the kernels what lies where.

All are int64: addresses, counts and strides (of numbers, not bytes). A product is described by
`PRODUCT` of them, a layer by its six products; a table's own fields are the constants below.
"""

from __future__ import annotations

__all__ = ["ACTIVATIONS", "CHUNK", "COLUMNS", "DEPTH", "LINE", "ROWS", "SOON"]

# Outputs that lie side by side in packed weights, and the multiple that inputs are padded to.
COLUMNS, DEPTH = 32, 8

# Rows that one pass over packed weights serves at most.
ROWS = 8

# Positions of the next lane's or head's past that are asked for while one is at work.
SOON = 16

# Bytes of a line of the CPU's caches.
LINE = 64

# Source positions that are looked at together: what a thread does at a time, so that few heads
# over a long source still give work to all. Always the same, for results must not depend on the
# number of threads.
CHUNK = 256

# A product: packed weights; float32 [outputs] each: scales, sums of weights, biases; sizes.
WEIGHTS, SCALES, SUMS, BIASES, OUTPUTS, INPUTS, PADDED = range(7)
PRODUCT = 7

# A decoder layer's products, in the order of their use, and an encoder layer's.
QKV, OUT, CROSS_QUERY, CROSS_OUT, UP, DOWN = range(6)
READING_UP, READING_DOWN = 2, 3
PRODUCTS, READING_PRODUCTS = 6, 4

# What every table has.
(
    QUANTISED,  # uint8 [rows, largest padded]
    RANGES,  # float32 [rows, 2]: step and least of each row
    LARGEST,  # of these bytes
    SCRATCH,  # of the first thread
    SCRATCH_STRIDE,  # bytes to the next one's
) = range(5)

# One linear layer on its own.
(
    LINEAR_INPUT,
    LINEAR_ROWS,
    LINEAR_OUTPUT,  # float32 [rows, outputs], or [rows] of what follows
    LINEAR_FOUND,  # [threads, rows]: the greatest output, float32, its place, int32; float64:
    LINEAR_TOTALS,  # the sum of exponentials, if it is wanted
    LINEAR_OP,
) = range(5, 11)
LINEAR = LINEAR_OP + PRODUCT

# A pass over all layers, of a decoder (lanes × tokens rows), an encoder (sources for lanes), or of
# what makes keys and values of sources (likewise).
(
    LANES,
    TOKENS,
    LAYERS,
    WIDTH,
    HEADS,
    HEAD_DIM,
    FFN,
    NORM_FIRST,
    ACTIVATION,
    SCALE,  # of scores: the bits of a float64
    EPSILON,  # of norms: the same
    PROGRAM,  # int64 [layers, products, PRODUCT]
    NORMS,  # int64 [blocks + 1, 2]: weight and bias of the norm before each block, 0 for none
    STATES,  # float32 [rows, width], changed on the way
    RESULT,  # float32 [rows, width]
    MIXED,  # float32 [rows, heads × head_dim]
    QKVS,  # float32 [rows, 3, heads, head_dim]
    QUERIES,  # float32 [rows, heads, head_dim], of each layer when QUERIES_STRIDE says so
    QUERIES_STRIDE,
    INNER,  # float32 [rows, ffn]
    PARTIAL,  # float32 [rows, heads, chunks, head_dim + 2]
    CACHE,  # int64 [layers]: bfloat16 [2, slots, heads, room, head_dim] each; of sources
    # [sources]: [layers, 2, heads, source length, head_dim] each
    SLOTS,
    ROOM,
    FIRST_SLOT,
    STARTS,  # int64 [lanes]: what each has read before; for an encoder [sources + 1], first rows
    GROUPS,  # lanes in a row on one source
    GROUP,  # int64 [groups, 3]: first lane, lanes, source length
    SOURCES,  # int64 [groups, layers, 2]: keys and values, [heads, source length, head_dim]
    SOURCES_BFLOAT16,
    CHUNKS,
) = range(5, 36)
STEP = 36

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
