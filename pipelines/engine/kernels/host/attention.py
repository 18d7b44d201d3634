"""Attention of one head over a whole source, by the compiled kernel `attend_head`."""

from __future__ import annotations

import threading

from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.linear import aligned_bytes
from pipelines.engine.kernels.library import KernelLibrary

_KERNEL, _HEAD_DIM = "attend_head", 64


# The argument that a thread has used last, with its buffers: of all layers.
_of_thread = threading.local()


class CompiledAttention:
    """Attention of an encoder's head, whose scores are multiplied by `scale`; several threads may
    compute one head each."""

    def __init__(self, library: KernelLibrary, scale: float) -> None:
        self._library, self._scale = library, scale

    @staticmethod
    def of(library: KernelLibrary | None, head_dim: int, scale: float) -> CompiledAttention | None:
        """For heads of this size; None if unsupported."""
        if library is None or head_dim != _HEAD_DIM or not library.has(_KERNEL):
            return None
        return CompiledAttention(library, scale)

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, result: Tensor) -> None:
        """Compute a head from float32 [positions, 64], rows of equal distance, into `result` of the
        same shape and any row distance."""
        args = _argument(len(keys))
        args.scale = self._scale
        args.queries, args.keys, args.values = (x.data_ptr() for x in (query, keys, values))
        args.stride, args.output_stride = keys.stride(0), result.stride(0)
        args.output = result.data_ptr()
        self._library.run_alone(_KERNEL, args)


def _argument(positions: int) -> abi.HeadArgs:
    """An argument with buffers of this thread."""
    args: abi.HeadArgs | None = getattr(_of_thread, "args", None)
    if args is None or args.positions != positions:
        args = abi.HeadArgs(positions=positions)
        _of_thread.args, _of_thread.buffer = args, _add_buffers(args)
    return args


def _add_buffers(args: abi.HeadArgs) -> Tensor:
    """Allocate the temporaries; the tensor keeps them alive."""
    tile = abi.MOST_TILE_COLUMNS
    padded = -(-args.positions // tile) * tile
    of_scores = abi.QUERY_ROWS * (padded + abi.SCORES_BEYOND)
    blocks = -(-padded // abi.SCALE_POSITIONS)
    numbers = {
        "packed_keys": padded * _HEAD_DIM,
        "packed_values": padded * _HEAD_DIM,
        "packed_queries": abi.QUERY_ROWS * _HEAD_DIM,
        "scores": of_scores,
        "weights": of_scores // 2,
        "inv_sums": abi.QUERY_ROWS,
        "block_factors": blocks * abi.QUERY_ROWS,
        "block_totals": blocks,
        "tile": abi.QUERY_ROWS * tile,
        "query_scales": abi.QUERY_ROWS,
        "key_scales": padded,
        "value_scales": _HEAD_DIM,
        "value_inverses": _HEAD_DIM,
    }
    lines = {name: -(-4 * n // abi.CACHE_LINE_BYTES) for name, n in numbers.items()}
    buffer = aligned_bytes(sum(lines.values()) * abi.CACHE_LINE_BYTES)
    address = buffer.data_ptr()
    for name, count in lines.items():
        setattr(args, name, address)
        address += count * abi.CACHE_LINE_BYTES
    return buffer
