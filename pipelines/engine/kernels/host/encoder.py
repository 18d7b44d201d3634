"""Kernel calls on the flattened tokens of several sources: text encoder, cross-attention K/V.

Sources follow each other without padding, so that no product is computed for padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.stack import CompiledStack

__all__ = ["CompiledCrossKV", "CompiledEncoder"]


class CompiledEncoder(CompiledStack):
    """All layers of a text encoder."""

    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run the layers and the final norm.

        Args:
            x: float32 [sum of lengths, d_model], the embedded sources; overwritten.
            lengths: of the sources.

        Returns:
            float32 [sum of lengths, d_model].
        """
        table, result = self._table, torch.empty(x.shape)
        inner, ffn = self._stack.attention_dim, self._stack.ffn_dim
        self._reserve(len(x), max(lengths), {abi.MIXED: inner, abi.QKVS: 3 * inner, abi.INNER: ffn})
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        table[abi.LANES], table[abi.STARTS] = len(lengths), starts.ctypes.data
        table[abi.STATES], table[abi.RESULT] = x.data_ptr(), result.data_ptr()
        self._library.run("encoder_pass", table)
        return result


class CompiledCrossKV(CompiledStack):
    """The cross-attention key and value projections of all decoder layers."""

    def __call__(self, hidden: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Project encoder states to keys and values.

        Args:
            hidden: [sum of lengths, d_model].
            lengths: of the sources.

        Returns:
            For each source bfloat16 [layers, 2 (keys, values), heads, length, head_dim].
        """
        table, stack = self._table, self._stack
        x = hidden.float().contiguous()
        self._reserve(len(x), 0, {abi.QKVS: 2 * stack.attention_dim})
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        results = [
            torch.empty(self._layers, 2, stack.heads, length, stack.head_dim, dtype=torch.bfloat16)
            for length in lengths
        ]
        addresses = np.array([result.data_ptr() for result in results], dtype=np.int64)
        table[abi.LANES], table[abi.STARTS] = len(lengths), starts.ctypes.data
        table[abi.STATES], table[abi.CACHE] = x.data_ptr(), addresses.ctypes.data
        self._library.run("project_cross_kv", table)
        return results
