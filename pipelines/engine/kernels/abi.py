"""The argument tables of the kernels: int64 arrays that Python fills and compiled code reads.

Each constant below is the index of a field. A field is one of

    address   of the first element of a buffer in this process's memory (bytes), with the buffer's
              dtype and shape in the comment; 0 where the comment allows it
    count     of elements, rows, layers …; never of bytes
    stride    in elements, except where the comment says bytes
    flag      0 or 1
    bits      of a float64, to be read with `as_float64`

Host code (host/) builds the tables and keeps the buffers alive during the call; device code
(device/) casts addresses to typed arrays. All buffers are C-contiguous. `linear` and `argmax` take
a table of `LINEAR` fields, all other kernels one of `STEP` fields. A matrix product is described by
`PRODUCT` consecutive fields, and a layer by its products in the order of their constants.

The words of the tables: a row is one token's state vector; a lane is one sequence of a decoder's
batch (a hypothesis or sample), or one source of an encoder's; a group is a run of consecutive lanes
that share one encoded source; padded is a number of inputs rounded up to a multiple of `DEPTH`.
"""

from __future__ import annotations

__all__ = ["ACTIVATIONS", "CHUNK", "COLUMNS", "DEPTH", "LINE", "PREFETCH_POSITIONS", "ROWS"]

# Packed weights: outputs of one panel, and the multiple that the number of inputs is padded to.
COLUMNS, DEPTH = 32, 8

# The most rows that one pass over a panel of weights multiplies.
ROWS = 8

# Cached positions of the next lane and head that are prefetched during attention of the current.
PREFETCH_POSITIONS = 16

# Bytes of a line of the CPU's caches.
LINE = 64

# Source positions of one task of cross-attention: small enough that few heads over a long source
# still give work to all threads. A constant, since results must not depend on the number of
# threads.
CHUNK = 256

# A matrix product y = x Wᵀ + b with W in int8.
(
    WEIGHTS,  # address: int8 [panels, padded / 4, COLUMNS, 4], panels = ceil(outputs / COLUMNS)
    SCALES,  # address: float32 [outputs], of the weights
    SUMS,  # address: float32 [outputs], the sum of the int8 weights of each output
    BIASES,  # address: float32 [outputs]
    OUTPUTS,  # count
    INPUTS,  # count, without padding
    PADDED,  # count, the inputs with padding
) = range(7)
PRODUCT = 7

# The products of a decoder layer, in the order of their use.
QKV, OUT, CROSS_QUERY, CROSS_OUT, UP, DOWN = range(6)
PRODUCTS = 6
# Those of an encoder layer: QKV and OUT as above, then these.
ENCODER_UP, ENCODER_DOWN = 2, 3
ENCODER_PRODUCTS = 4

# The first fields of every table.
(
    QUANTIZED,  # address: uint8 [rows, padded], room for the largest padded: a product's input
    RANGES,  # address: float32 [rows, 2]: step and minimum of each quantized row
    LARGEST,  # count: the largest value of a quantized activation, 255 or 127
    SCRATCH,  # address: buffer of thread 0
    SCRATCH_STRIDE,  # bytes from the buffer of one thread to that of the next
) = range(5)

# `linear` and `argmax`: one matrix product.
(
    LINEAR_INPUT,  # address: float32 [rows, inputs]
    LINEAR_ROWS,  # count
    LINEAR_OUTPUT,  # address: float32 [rows, outputs]; for `argmax` [rows] records as below
    # address, for `argmax`: [threads, rows] records of 16 bytes, each thread's partial result:
    # float32 largest output, int32 its index, float64 Σ exp(output − largest)
    LINEAR_FOUND,
    LINEAR_TOTALS,  # flag, for `argmax`: compute the sums of exponentials
    LINEAR_OP,  # the first field of the product
) = range(5, 11)
LINEAR = LINEAR_OP + PRODUCT

# `decoder_step`, `encoder_pass` and `project_cross_kv`: all layers of one side of a model. Rows are
# lanes × tokens for the decoder, and the tokens of all sources otherwise.
(
    LANES,  # count: sequences of the decoder's batch, or sources
    TOKENS,  # count: new tokens of each lane (decoder)
    LAYERS,  # count
    WIDTH,  # count: d_model
    HEADS,  # count
    HEAD_DIM,  # count
    FFN,  # count: inner width of the feed-forward block
    NORM_FIRST,  # flag: pre-norm; otherwise post-norm
    ACTIVATION,  # index in ACTIVATIONS
    SCALE,  # bits: the factor of attention scores
    EPSILON,  # bits: of layer norms
    PROGRAM,  # address: int64 [layers, products, PRODUCT]
    # address: int64 [blocks + 1, 2]: addresses of weight and bias, float32 [width], of the norm
    # that is applied before each block and after the last one; 0, 0 for no norm
    NORMS,
    STATES,  # address: float32 [rows, width], the residual stream; overwritten
    RESULT,  # address: float32 [rows, width]
    MIXED,  # address: float32 [rows, heads, head_dim], output of attention
    QKVS,  # address: float32 [rows, 3, heads, head_dim]; [rows, 2, …] for `project_cross_kv`
    QUERIES,  # address: float32 [rows, heads, head_dim] of cross-attention
    QUERIES_STRIDE,  # stride from the queries of one layer to those of the next; 0: overwritten
    INNER,  # address: float32 [rows, ffn]
    # address: float32 [rows, heads, chunks, head_dim + 2], cross-attention per chunk: Σ exp(score −
    # maximum) · value, Σ exp(score − maximum), maximum
    PARTIAL,
    # address: int64 [layers], addresses of bfloat16 [2 (keys, values), slots, heads, room,
    # head_dim]; for `project_cross_kv` int64 [sources], addresses of bfloat16 [layers, 2, heads,
    # source length, head_dim]
    CACHE,
    SLOTS,  # count: slots of the cache
    ROOM,  # count: positions of a slot
    FIRST_SLOT,  # index: the slot of lane 0; lane i has FIRST_SLOT + i
    # address: int64 [lanes], the number of cached positions of each lane; for sources int64
    # [sources + 1], the first row of each, then the number of all rows
    STARTS,
    GROUPS,  # count: groups
    GROUP,  # address: int64 [groups, 3]: first lane, number of lanes, source length
    # address: int64 [groups, layers, 2]: addresses of keys and values [heads, source length,
    # head_dim]
    SOURCES,
    SOURCES_BFLOAT16,  # flag: these are bfloat16; otherwise float32
    CHUNKS,  # count: chunks of the longest source, ceil(length / CHUNK)
) = range(5, 36)
STEP = 36

# Activation functions, by transformers' names.
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
