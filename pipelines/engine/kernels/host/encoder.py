"""Kernel calls on the flattened tokens of several sources: text encoder, cross-attention K/V.

Sources follow each other without padding, so that no product is computed for padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.stack import CompiledStack
from pipelines.families.architecture import CrossAttentionSpec, FeedForwardSpec, SelfAttentionSpec


class CompiledEncoder(CompiledStack):
    """All layers of a text encoder."""

    kernel = "encoder_pass"
    kinds = {SelfAttentionSpec: abi.ENCODER_ATTENTION, FeedForwardSpec: abi.FEED_FORWARD}

    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run the layers and the final norm.

        Args:
            x: float32 [sum of lengths, d_model], the embedded sources; overwritten.
            lengths: of the sources.

        Returns:
            float32 [sum of lengths, d_model].
        """
        args, result = self._args, torch.empty(x.shape)
        attention_dim = self._stack.attention_dim
        columns = {
            "qkv": 3 * attention_dim,
            "attention_output": attention_dim,
            "ffn_hidden": self._ffn_dim,
        }
        self._reserve(len(x), max(lengths), columns)
        offsets = _row_offsets(lengths)
        args.sequences, args.row_offsets = len(lengths), offsets.ctypes.data
        args.states, args.result = x.data_ptr(), result.data_ptr()
        self._runner.run(args, len(x))
        return result


class CompiledCrossKV(CompiledStack):
    """The cross-attention key and value projections of all decoder layers."""

    kernel = "project_cross_kv"
    kinds = {CrossAttentionSpec: abi.CROSS_ATTENTION}

    def __call__(self, hidden: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Project encoder states to keys and values.

        Args:
            hidden: [sum of lengths, d_model].
            lengths: of the sources.

        Returns:
            For each source bfloat16 [layers, 2 (keys, values), heads, length, head_dim].
        """
        args, stack = self._args, self._stack
        x = hidden.float().contiguous()
        self._reserve(len(x), 0, {"qkv": 2 * stack.attention_dim})
        offsets = _row_offsets(lengths)
        results = [
            torch.empty(stack.layers, 2, stack.heads, length, stack.head_dim, dtype=torch.bfloat16)
            for length in lengths
        ]
        addresses = np.array([result.data_ptr() for result in results], dtype=np.int64)
        args.sequences, args.row_offsets = len(lengths), offsets.ctypes.data
        args.states, args.cross_kv = x.data_ptr(), addresses.ctypes.data
        self._runner.run(args, len(x))
        return results


def _row_offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    """The first row of each source, then the number of all rows: int64 [sources + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
