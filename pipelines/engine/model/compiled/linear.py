"""Linear layers with int8 weights: y = x Wᵀ + b."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.model.compiled import layout as at
from pipelines.engine.model.compiled.library import Library
from pipelines.engine.model.quantised import quantised

__all__ = ["CompiledLinear", "Scratch", "aligned"]

# How many outputs are laid out at a time, so that little is there twice.
_AT_ONCE = 64 * at.COLUMNS


class CompiledLinear:
    """int8 weights with a scale per output; each row of activations becomes bytes with a step and
    a least value of its own. weight [outputs, inputs], bias [outputs] in any float dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None, library: Library) -> None:
        self._library = library
        self.outputs, self.inputs = weight.shape
        self.padded = -(-self.inputs // at.DEPTH) * at.DEPTH
        columns = -(-self.outputs // at.COLUMNS) * at.COLUMNS
        packed, scales, sums = aligned(columns * self.padded), *torch.zeros(2, self.outputs)
        for start in range(0, self.outputs, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, self.outputs))
            numbers, scales[part] = quantised(weight[part])
            sums[part] = numbers.sum(1, dtype=torch.int32).float()
            rows = -(-len(numbers) // at.COLUMNS) * at.COLUMNS
            wide = torch.zeros(rows, self.padded, dtype=torch.int8)
            wide[: len(numbers), : self.inputs] = numbers
            panels = wide.view(-1, at.COLUMNS, self.padded // 4, 4).transpose(1, 2)
            target = packed[start * self.padded : (start + rows) * self.padded]
            target.view(torch.int8).view(panels.shape).copy_(panels)
        bias = torch.zeros(self.outputs) if bias is None else bias.float().contiguous()
        self._kept = (packed, scales, sums, bias)
        addresses = [part.data_ptr() for part in self._kept]
        self.op = np.array([*addresses, self.outputs, self.inputs, self.padded], dtype=np.int64)

    def __call__(self, x: Tensor) -> Tensor:
        """x float32 [..., inputs] → [..., outputs]."""
        x = x.float().contiguous()
        y = torch.empty(*x.shape[:-1], self.outputs)
        rows = x.numel() // self.inputs
        numbers, ranges = torch.empty(rows * self.padded, dtype=torch.uint8), torch.empty(rows, 2)
        scratch, table = Scratch(torch.get_num_threads(), 0), np.empty(at.LINEAR, dtype=np.int64)
        table[at.QUANTISED], table[at.RANGES] = numbers.data_ptr(), ranges.data_ptr()
        table[at.LARGEST] = self._library.largest
        scratch.tell(table)
        table[at.LINEAR_INPUT], table[at.LINEAR_ROWS] = x.data_ptr(), rows
        table[at.LINEAR_OUTPUT], table[at.LINEAR_OP :] = y.data_ptr(), self.op
        self._library.run("linear", table)
        return y


def aligned(size: int) -> Tensor:
    """So many bytes, from the beginning of a cache line on."""
    whole = torch.empty(size + at.LINE, dtype=torch.uint8)
    first = -whole.data_ptr() % at.LINE
    return whole[first : first + size]


class Scratch:
    """What threads need each for products and, at other times, for so many numbers."""

    def __init__(self, threads: int, floats: int) -> None:
        numbers = 4 * max((at.ROWS + 1) * at.COLUMNS, floats)
        self._stride = -(-numbers // at.LINE) * at.LINE
        self._kept = aligned(threads * self._stride)

    def tell(self, table: NDArray[np.int64]) -> None:
        table[at.SCRATCH] = self._kept.data_ptr()
        table[at.SCRATCH_STRIDE] = self._stride
