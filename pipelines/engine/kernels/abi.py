"""The structs that host and device code share: one schema, from which both get the layout.

Each class below is a struct, and each annotation a field with its C type; the comment says what it
holds. `layout` makes it a `ctypes.Structure`, which Python code fills (host/); `dtype_of` gives the
same offsets to Numba, which reads the fields by name (device/ir.py). A misspelled field is an
error on either side.

An `Address` points to the first element of a buffer in this process, with the dtype and the shape
in the comment; 0 means that there is none. Buffers are C-contiguous, and the host keeps them alive
during the call. Counts and strides are in elements, unless the name says bytes.

A row is one token's vector in a matrix of activations. A sequence is one of a decoder's batch, or
one source of an encoder's. A group is a run of consecutive sequences that share one source.
"""

from __future__ import annotations

import ctypes
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import numpy as np

# Packed weights: outputs of one panel, and the multiple that the number of inputs is padded to.
PANEL_OUTPUTS, INPUT_MULTIPLE = 32, 8

# The most rows that one pass over a panel of weights multiplies: by vector instructions, and by a
# matrix unit, which computes whole tiles, for rows that do not count, too.
TILE_ROWS, MATRIX_ROWS = 8, 32
# The unit's configuration of its tiles.
TILE_CONFIG_BYTES = 64
# A product's part of a thread's scratch: int32 sums of a tile and a row of values, then two tile
# configurations.
PRODUCT_FLOATS = (MATRIX_ROWS + 1) * PANEL_OUTPUTS
# `argmax` keeps a record for so many panels: with few, many outputs are the largest so far.
ARGMAX_PANELS = 16

# Cached positions of the next (sequence, head) that are prefetched during attention of this one.
PREFETCH_POSITIONS = 16

CACHE_LINE_BYTES = 64

# Source positions of one task of cross-attention: small enough that few heads over a long source
# still give work to all threads. A constant, since results must not depend on the number of
# threads.
CHUNK_POSITIONS = 256

# Queries that attention over a whole source computes at a time, and the most keys or outputs of a
# tile of its products.
QUERY_ROWS, MOST_TILE_COLUMNS = 6, 64

# Attention in int16: the limit of queries and keys, whose products are added for the 64 numbers of
# a head; what a weight of 1 is, and the limit of values, whose products are added for so many
# positions. No sum exceeds int32.
QUERY_KEY_LIMIT, WEIGHT_ONE, VALUE_LIMIT, VALUE_POSITIONS = 4095, 16384, 2047, 64
# Positions whose weights have one scale, a multiple of VALUE_POSITIONS: fewer keep small weights
# beside a large one better, and take longer.
SCALE_POSITIONS = 256

# Scores beyond the last position of a row that attention computes, to fill a block of vector code.
SCORES_BEYOND = 16

# Offsets of a team's words from its address, from a word to the number of those who sleep at it,
# and the bytes of all of it. See `Team`.
JOB, PHASE, ARRIVED = (CACHE_LINE_BYTES * line for line in (1, 3, 5))
SLEEPERS, TEAM_BYTES = CACHE_LINE_BYTES, CACHE_LINE_BYTES * 6
# A job's word has the number of its threads in the lowest bits, and its own above; no threads: the
# team is closed.
THREAD_BITS = 12
MOST_THREADS = (1 << THREAD_BITS) - 1

# Activation functions, by transformers' names.
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")

# Kinds of blocks (BlockArgs.kind): a decoder's attention to earlier tokens and to a source, an
# encoder's to all of its source, and the feed-forward block.
SELF_ATTENTION, CROSS_ATTENTION, ENCODER_ATTENTION, FEED_FORWARD = range(4)

Address = Annotated[int, ctypes.c_int64]
Count = Annotated[int, ctypes.c_int64]
Stride = Annotated[int, ctypes.c_int64]
Index = Annotated[int, ctypes.c_int64]
Flag = Annotated[int, ctypes.c_int64]  # 0 or 1
Float64 = Annotated[float, ctypes.c_double]
Float32 = Annotated[float, ctypes.c_float]
Int32 = Annotated[int, ctypes.c_int32]

Struct = TypeVar("Struct", bound=ctypes.Structure)


def layout(struct: type[Struct]) -> type[Struct]:
    """Lay out a struct as its annotations say."""
    hints = get_type_hints(struct, include_extras=True)
    struct._fields_ = [(name, _c_type(hint)) for name, hint in hints.items()]
    return struct


def _c_type(hint: Any) -> Any:
    """The C type of an annotation: that of an alias above, or another struct."""
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else hint


def dtype_of(struct: type[ctypes.Structure]) -> np.dtype[Any]:
    """The same struct for NumPy and Numba."""
    names = [field[0] for field in struct._fields_]
    formats = [
        dtype_of(kind) if issubclass(kind, ctypes.Structure) else np.dtype(kind)
        for _, kind, *_ in struct._fields_
    ]
    offsets = [getattr(struct, name).offset for name in names]
    size = ctypes.sizeof(struct)
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    return np.dtype(fields, align=True)  # type: ignore[call-overload, no-any-return]


@layout
class LinearLayer(ctypes.Structure):
    """y = x Wᵀ + b with W in int8."""

    __slots__ = ()

    # int8 [panels, padded_inputs / group, PANEL_OUTPUTS, group], panels = ceil(outputs /
    # PANEL_OUTPUTS), group = IsaLevel.group_inputs
    weights: Address
    scales: Address  # float32 [outputs], of the weights
    weight_sums: Address  # float32 [outputs], the sum of the int8 weights of each output
    biases: Address  # float32 [outputs]
    outputs: Count
    inputs: Count
    padded_inputs: Count  # rounded up to a multiple of INPUT_MULTIPLE


@layout
class NormWeights(ctypes.Structure):
    """A layer norm; both addresses are 0 where there is none."""

    __slots__ = ()

    weight: Address  # float32 [d_model]
    bias: Address  # float32 [d_model]


@layout
class BlockArgs(ctypes.Structure):
    """A block of a layer."""

    __slots__ = ()

    kind: Index  # SELF_ATTENTION …
    layer: Index  # whose part of the cache and of the sources it reads
    linears: Address  # LinearLayer [2], or [1] for project_cross_kv
    norm: NormWeights  # that is applied before the block
    activation: Index  # in ACTIVATIONS, of FEED_FORWARD


@layout
class SourceGroup(ctypes.Structure):
    """Consecutive sequences of the batch that share one encoded source."""

    __slots__ = ()

    first_sequence: Index
    sequences: Count
    source_length: Count  # positions


@layout
class KeyValueAddresses(ctypes.Structure):
    """An encoded source in one decoder layer; as `EncodedSource.addresses` packs it."""

    __slots__ = ()

    keys: Address  # bfloat16 [heads, source length, head_dim]
    values: Address  # the same


@layout
class ArgmaxRecord(ctypes.Structure):
    """The largest output of a row, or of a thread's share of it."""

    __slots__ = ()

    value: Float32
    index: Int32  # of the first of equal outputs
    exp_sum: Float64  # Σ exp(output − value)


@layout
class Team(ctypes.Structure):
    """Threads that run kernels together, and the kernel that they run.

    Behind it, each at a cache line of its own, are words (int32): JOB, which threads without work
    wait for, PHASE, the number of barriers so far, and ARRIVED, the threads that wait at one.
    SLEEPERS bytes after JOB and after PHASE is the number of threads that sleep until it changes.
    """

    __slots__ = ()

    kernel: Address  # of the function
    args: Address  # its argument, which begins with a Workspace
    args_bytes: Count
    spins: Count  # how many times a thread looks at a word before it sleeps


@layout
class Workspace(ctypes.Structure):
    """What every kernel of several threads needs besides the weights."""

    __slots__ = ()

    team: Address  # Team
    thread: Index  # the number of this thread, from 0
    threads: Count  # that run the kernel
    # uint8 [rows + MATRIX_ROWS − 1, padded_inputs] of the largest layer: a product's input (see
    # IsaLevel.signed), and rows that fill the last tile up
    quantized: Address
    quant_ranges: Address  # float32 [rows, 2]: step and minimum of each quantized row
    quant_max: Count  # the largest value of a quantized activation, 255 or 127
    scratch: Address  # buffer of thread 0
    scratch_bytes: Stride  # from the buffer of one thread to that of the next, in bytes


@layout
class LinearArgs(ctypes.Structure):
    """Argument of `linear` and `argmax`: one matrix product."""

    __slots__ = ()

    workspace: Workspace
    layer: LinearLayer
    rows: Count
    input: Address  # float32 [rows, inputs]
    output: Address  # float32 [rows, outputs]; for `argmax` ArgmaxRecord [rows]
    records: Address  # for `argmax`: ArgmaxRecord [panels / ARGMAX_PANELS, rows]
    exp_sums: Flag  # for `argmax`: compute `exp_sum`


@layout
class HeadArgs(ctypes.Structure):
    """Argument of `attend_head`: one head of an encoder's self-attention, by one thread.

    `padded` is the number of positions, rounded up to a multiple of MOST_TILE_COLUMNS.
    """

    __slots__ = ()

    positions: Count
    scale: Float64  # the factor of attention scores
    queries: Address  # float32 [positions, 64]
    keys: Address  # the same
    values: Address  # the same
    stride: Stride  # from one position to the next of queries, keys and values
    output: Address  # float32 [positions, 64]
    output_stride: Stride

    # Temporaries; each starts at a cache line. Packed numbers are float32, or pairs of int16.
    packed_keys: Address  # [padded × 64]
    packed_values: Address  # [padded × 64]
    packed_queries: Address  # [QUERY_ROWS × 64]
    scores: Address  # float32 [QUERY_ROWS, padded + SCORES_BEYOND]
    weights: Address  # int16 [QUERY_ROWS, padded + SCORES_BEYOND]
    inv_sums: Address  # float32 [QUERY_ROWS], 1 / sum of the weights
    # float32 [padded / SCALE_POSITIONS rounded up, QUERY_ROWS], what the weights of a block of
    # positions are multiplied by
    block_factors: Address
    block_totals: Address  # float32 [the same blocks], sums of the weights of a row
    tile: Address  # float32 [QUERY_ROWS × MOST_TILE_COLUMNS]
    # float32, of int16: what the number 1 stands for.
    query_scales: Address  # [QUERY_ROWS]
    key_scales: Address  # [padded], of each position
    value_scales: Address  # [64], of each number of a head
    value_inverses: Address  # [64], 1 / value_scales


@layout
class StackArgs(ctypes.Structure):
    """Argument of `decoder_step`, `encoder_pass` and `project_cross_kv`: all layers of one side.

    Rows are sequences × tokens for the decoder, and the tokens of all sources otherwise.
    """

    __slots__ = ()

    workspace: Workspace

    # Set when the model is loaded.
    layers: Count
    d_model: Count
    heads: Count
    head_dim: Count
    norm_first: Flag  # pre-norm; otherwise post-norm
    attention_scale: Float64  # the factor of attention scores
    norm_eps: Float64
    blocks: Count  # of all layers
    block_args: Address  # BlockArgs [blocks + 1]; the last one has the norm after the last block

    # Intermediate buffers, reused by every call.
    qkv: Address  # float32 [rows, 3, heads, head_dim]; [rows, 2, …] for project_cross_kv
    attention_output: Address  # float32 [rows, heads, head_dim]
    ffn_hidden: Address  # float32 [rows, outputs of the first layer of FEED_FORWARD]
    cross_queries: Address  # float32 [rows, heads, head_dim]
    cross_queries_stride: Stride  # from one layer's queries to the next one's; 0: overwritten
    # float32 [rows, heads, max_chunks, head_dim + 2], cross-attention per chunk of the source:
    # Σ exp(score − maximum) · value, Σ exp(score − maximum), maximum
    cross_partials: Address

    # Set for each call.
    sequences: Count
    states: Address  # float32 [rows, d_model], the residual stream; overwritten
    result: Address  # float32 [rows, d_model]

    # decoder_step
    new_tokens: Count  # of each sequence
    past_lengths: Address  # int64 [sequences], cached positions before this step
    # int64 [layers], addresses of bfloat16 [2 (keys, values), slot_capacity, heads,
    # position_capacity, head_dim]
    kv_cache: Address
    slot_capacity: Count
    position_capacity: Count  # of a slot
    first_slot: Index  # the slot of sequence 0; sequence i has first_slot + i
    groups: Count
    source_groups: Address  # SourceGroup [groups]
    source_kv: Address  # KeyValueAddresses [groups, layers]
    max_chunks: Count  # chunks of the longest source, ceil(length / CHUNK_POSITIONS)

    # encoder_pass and project_cross_kv
    row_offsets: Address  # int64 [sequences + 1]: the first row of each source, then all rows
    # project_cross_kv: int64 [sequences], addresses of bfloat16 [layers, 2 (keys, values), heads,
    # source length, head_dim]
    cross_kv: Address


# The place of Workspace.thread in an argument, as int64.
THREAD_FIELD: int = cast(Any, Workspace.thread).offset // 8
