"""Addresses as typed arrays and structs.

Buffers are passed as addresses (int64), not as arrays: an array in Numba is a struct of seven
numbers, which are passed on the stack to functions that are not inlined. `f32(address)[i]` is
element i of a float32 buffer, `linear_layers(address)[i].outputs` a field of struct i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.device.intrinsics import pointer

# Lets LLVM reorder sums, so that loops become vector code, but keeps NaN and ∞: the sampler must
# see that a source is damaged.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_UNBOUNDED = 1 << 40  # the declared length of arrays; bounds are not checked

jit = njit(fastmath=_FAST, error_model="numpy")


def _view(dtype: Any) -> Any:
    """A function that views an address as an array of this dtype."""

    @jit
    def at(address: Any) -> Any:
        return carray(pointer(address), (_UNBOUNDED,), dtype)

    return at


f32, u8, u16 = _view(np.float32), _view(np.uint8), _view(np.uint16)
i32, i64 = _view(np.int32), _view(np.int64)
bf16 = u16  # the bits of bfloat16 numbers; see `bf16_to_f32`

linear_layers = _view(abi.dtype_of(abi.LinearLayer))
block_args = _view(abi.dtype_of(abi.BlockArgs))
source_groups = _view(abi.dtype_of(abi.SourceGroup))
key_values = _view(abi.dtype_of(abi.KeyValueAddresses))
teams = _view(abi.dtype_of(abi.Team))
argmax_records = _view(abi.dtype_of(abi.ArgmaxRecord))
