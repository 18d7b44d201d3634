"""Keys and values of texts for all layers of a decoder in one call of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.host.stack import CompiledStack

__all__ = ["CompiledCrossKV"]


class CompiledCrossKV(CompiledStack):
    def __call__(self, hidden: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """States [all tokens, d_model] of sources of these lengths, one behind the other → of each
        bfloat16 [layers, 2 (keys, values), heads, its length, head_dim]."""
        table, stack = self._table, self._stack
        x = hidden.float().contiguous()
        self._reserve(len(x), 0, {at.QKVS: 2 * stack.inner})
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        found = [
            torch.empty(self._layers, 2, stack.heads, length, stack.head_dim, dtype=torch.bfloat16)
            for length in lengths
        ]
        places = np.array([each.data_ptr() for each in found], dtype=np.int64)
        table[at.LANES], table[at.STARTS] = len(lengths), starts.ctypes.data
        table[at.STATES], table[at.CACHE] = x.data_ptr(), places.ctypes.data
        self._library.run("project_cross_kv", table)
        return found
