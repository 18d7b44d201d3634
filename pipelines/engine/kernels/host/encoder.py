"""The layers of an encoder of text in one call of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.host.stack import CompiledStack

__all__ = ["CompiledEncoder"]


class CompiledEncoder(CompiledStack):
    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """States [all tokens, d_model] of sources of these lengths, one behind the other, which are
        lost, → the same behind the last layer and its norm."""
        table, result = self._table, torch.empty(x.shape)
        inner, ffn = self._stack.inner, self._stack.ffn
        self._reserve(len(x), max(lengths), {at.MIXED: inner, at.QKVS: 3 * inner, at.INNER: ffn})
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        table[at.LANES], table[at.STARTS] = len(lengths), starts.ctypes.data
        table[at.STATES], table[at.RESULT] = x.data_ptr(), result.data_ptr()
        self._library.run("encoder_pass", table)
        return result
