"""The kernels that Python calls: C functions of one argument, the address of a struct (see abi.py).

All threads of a team run the same kernel on the same struct; each computes its share of every
stage, and a barrier ends each stage. A row is always computed in the same order of operations, so
its result depends neither on the other rows of the batch nor on the number of threads.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import carray, cfunc, from_dtype, types

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.attn_encode import attend_source
from pipelines.engine.kernels.device.elementwise import merge_argmax
from pipelines.engine.kernels.device.gemm import (
    ADD,
    ARGMAX,
    ARGMAX_AND_SUM,
    STORE,
    count_panels,
    gemm,
    gemm_panels,
)
from pipelines.engine.kernels.device.ir import (
    argmax_records,
    block_args,
    i64,
    jit,
    linear_layers,
)
from pipelines.engine.kernels.device.layers import (
    combine_cross_attention,
    cross_attention,
    encoder_attention,
    final_norm,
    norm_and_quantize,
    quantize_rows,
    self_attention,
    write_cross_kv,
)
from pipelines.engine.kernels.device.sync import (
    barrier,
    close,
    join,
    load_word,
    run,
    spin,
    thread_range,
)

_RECORD_BYTES = ctypes.sizeof(abi.ArgmaxRecord)


def _kernel(struct: type[ctypes.Structure]) -> Any:
    """Compile a function of a pointer to this struct."""
    return cfunc(types.void(types.CPointer(from_dtype(abi.dtype_of(struct)))))


@jit
def _run_blocks(args: Any, rows: Any) -> None:
    """All blocks of a stack: states → result."""
    workspace = args.workspace
    for index in range(args.blocks):
        block = block_args(args.block_args)[index]
        first, last = linear_layers(block.linears)[0], linear_layers(block.linears)[1]
        norm_and_quantize(args, block.norm, rows, first.padded_inputs)
        if block.kind == abi.FEED_FORWARD:
            gemm(workspace, first, rows, args.ffn_hidden, STORE)
            quantize_rows(
                workspace, args.ffn_hidden, first.outputs, rows, last.padded_inputs,
                block.activation,
            )  # fmt: skip
        elif block.kind == abi.CROSS_ATTENTION:
            queries = args.cross_queries + 4 * block.layer * args.cross_queries_stride
            gemm(workspace, first, rows, queries, STORE)
            cross_attention(args, block.layer)
            combine_cross_attention(args, rows, last.padded_inputs)
        else:
            gemm(workspace, first, rows, args.qkv, STORE)
            if block.kind == abi.SELF_ATTENTION:
                self_attention(args, block.layer)
            else:
                encoder_attention(args)
            quantize_rows(
                workspace, args.attention_output, last.inputs, rows, last.padded_inputs, -1
            )
        gemm(workspace, last, rows, args.states, ADD)
    final_norm(args, block_args(args.block_args)[args.blocks].norm, rows)


@_kernel(abi.StackArgs)
def decoder_step(address: Any) -> None:
    """All layers of a decoder, for the new tokens of all sequences."""
    args = carray(address, 1)[0]
    _run_blocks(args, args.sequences * args.new_tokens)


@_kernel(abi.StackArgs)
def encoder_pass(address: Any) -> None:
    """All layers of a text encoder, for the rows of many sources, one source after the other."""
    args = carray(address, 1)[0]
    _run_blocks(args, i64(args.row_offsets)[args.sequences])


@_kernel(abi.StackArgs)
def project_cross_kv(address: Any) -> None:
    """Cross-attention keys and values of many sources, for all layers of a decoder."""
    args = carray(address, 1)[0]
    rows, blocks = i64(args.row_offsets)[args.sequences], block_args(args.block_args)
    padded = linear_layers(blocks[0].linears)[0].padded_inputs
    quantize_rows(args.workspace, args.states, args.d_model, rows, padded, -1)
    for index in range(args.blocks):
        gemm(args.workspace, linear_layers(blocks[index].linears)[0], rows, args.qkv, STORE)
        write_cross_kv(args, blocks[index].layer)


@_kernel(abi.LinearArgs)
def linear(address: Any) -> None:
    """One linear layer."""
    args = carray(address, 1)[0]
    rows, layer, workspace = args.rows, args.layer, args.workspace
    quantize_rows(workspace, args.input, layer.inputs, rows, layer.padded_inputs, -1)
    gemm(workspace, layer, rows, args.output, STORE)


@_kernel(abi.LinearArgs)
def argmax(address: Any) -> None:
    """The largest output of one linear layer for each row; the outputs are not stored."""
    args = carray(address, 1)[0]
    rows, layer, workspace = args.rows, args.layer, args.workspace
    quantize_rows(workspace, args.input, layer.inputs, rows, layer.padded_inputs, -1)
    # A record for each part of the outputs, not for each thread: sums of exponentials are rounded,
    # and would depend on the number of threads.
    panels = count_panels(layer)
    parts = (panels + abi.ARGMAX_PANELS - 1) // abi.ARGMAX_PANELS
    first, end = thread_range(workspace, parts)
    for part in range(first, end):
        records = args.records + _RECORD_BYTES * rows * part
        for row in range(rows):
            record = argmax_records(records)[row]
            record.value, record.index, record.exp_sum = -np.inf, 0, 0.0
        panel = part * abi.ARGMAX_PANELS
        gemm_panels(
            workspace, layer, rows, records, ARGMAX_AND_SUM if args.exp_sums != 0 else ARGMAX,
            panel, min(panel + abi.ARGMAX_PANELS, panels),
        )  # fmt: skip
    barrier(workspace)
    first, end = thread_range(workspace, rows)
    for row in range(first, end):
        merge_argmax(args.records, row, rows, parts, args.output)


@_kernel(abi.HeadArgs)
def attend_head(address: Any) -> None:
    """Attention of one head over a whole source, by one thread."""
    attend_source(carray(address, 1)[0])


@cfunc(types.void(types.int64, types.int64))
def team_run(team: Any, threads: Any) -> None:
    """Run the kernel of a team on so many of its threads."""
    run(team, threads)


@cfunc(types.void(types.int64, types.int64, types.int64, types.int64))
def team_join(team: Any, thread: Any, own_args: Any, job: Any) -> None:
    """Be a thread of a team until it is closed."""
    join(team, thread, own_args, job)


@cfunc(types.void(types.int64))
def team_close(team: Any) -> None:
    """Let all threads of a team return."""
    close(team)


@cfunc(types.void(types.int64, types.int64))
def team_spin(word: Any, times: Any) -> None:
    """Look at a word that does not change, so that the host can time that."""
    spin(word, load_word(word), times)


KERNELS = {
    "argmax": argmax,
    "linear": linear,
    "encoder_pass": encoder_pass,
    "project_cross_kv": project_cross_kv,
    "decoder_step": decoder_step,
    "attend_head": attend_head,
}
TEAM_FUNCTIONS = {
    "team_run": team_run,
    "team_join": team_join,
    "team_close": team_close,
    "team_spin": team_spin,
}
