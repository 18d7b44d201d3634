"""Linear layers with int8 weights: y = x Wᵀ + b."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.loader import KernelLibrary
from pipelines.engine.weights.quantised import QuantisedWeight, quantise_weight

__all__ = ["CompiledLinear", "ThreadScratch", "aligned_bytes"]

# How many outputs are laid out at a time, so that little is there twice.
_PACK_ROWS = 64 * at.COLUMNS

_ARGMAX_DTYPE = np.dtype([("value", np.float32), ("place", np.int32), ("total", np.float64)])


class CompiledLinear:
    """int8 weights with a scale per output; each row of activations becomes bytes with a step and
    a least value of its own. weight [outputs, inputs], bias [outputs] in any float dtype."""

    def __init__(
        self, weight: Tensor | QuantisedWeight, bias: Tensor | None, library: KernelLibrary
    ) -> None:
        self._library = library
        self.outputs, self.inputs = weight.shape
        self.padded = -(-self.inputs // at.DEPTH) * at.DEPTH
        columns = -(-self.outputs // at.COLUMNS) * at.COLUMNS
        packed, scales, sums = aligned_bytes(columns * self.padded), *torch.zeros(2, self.outputs)
        for start in range(0, self.outputs, _PACK_ROWS):
            part = slice(start, min(start + _PACK_ROWS, self.outputs))
            few = quantise_weight(weight[part])
            numbers, scales[part] = few.numbers, few.scales
            sums[part] = numbers.sum(1, dtype=torch.int32).float()
            rows = -(-len(numbers) // at.COLUMNS) * at.COLUMNS
            wide = torch.zeros(rows, self.padded, dtype=torch.int8)
            wide[: len(numbers), : self.inputs] = numbers
            panels = wide.view(-1, at.COLUMNS, self.padded // 4, 4).transpose(1, 2)
            target = packed[start * self.padded : (start + rows) * self.padded]
            target.view(torch.int8).view(panels.shape).copy_(panels)
        self.bias = torch.zeros(self.outputs) if bias is None else bias.float().contiguous()
        self._kept = (packed, scales, sums, self.bias)
        addresses = [part.data_ptr() for part in self._kept]
        self.op = np.array([*addresses, self.outputs, self.inputs, self.padded], dtype=np.int64)

    def __call__(self, x: Tensor) -> Tensor:
        """x float32 [..., inputs] → [..., outputs]."""
        y = torch.empty(*x.shape[:-1], self.outputs)
        table = np.empty(at.LINEAR, dtype=np.int64)
        table[at.LINEAR_OUTPUT], table[at.LINEAR_OP :] = y.data_ptr(), self.op
        self._run("linear", x, table)
        return y

    def argmax(
        self, x: Tensor, bias: Tensor, totals: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [rows, inputs] → the number of the greatest output of each row, the first of equal
        ones; that output, NaN where there is one; and, if asked for, the sum of the exponentials of
        all outputs, as a share of that of the greatest, float64. All [rows]. bias [outputs]:
        instead of its own."""
        table = np.empty(at.LINEAR, dtype=np.int64)
        told = np.empty(len(x), dtype=_ARGMAX_DTYPE)
        found = np.empty((torch.get_num_threads(), len(x)), dtype=_ARGMAX_DTYPE)
        table[at.LINEAR_OUTPUT], table[at.LINEAR_FOUND] = told.ctypes.data, found.ctypes.data
        table[at.LINEAR_TOTALS], table[at.LINEAR_OP :] = totals, self.op
        table[at.LINEAR_OP + at.BIASES] = bias.data_ptr()
        self._run("argmax", x, table)
        places = torch.from_numpy(told["place"].astype(np.int64))
        values, sums = (torch.from_numpy(told[name].copy()) for name in ("value", "total"))
        return places, values, sums

    def _run(self, kernel: str, x: Tensor, table: NDArray[np.int64]) -> None:
        x = x.float().contiguous()
        rows = x.numel() // self.inputs
        numbers, ranges = torch.empty(rows * self.padded, dtype=torch.uint8), torch.empty(rows, 2)
        scratch = ThreadScratch(torch.get_num_threads(), 0)
        table[at.QUANTISED], table[at.RANGES] = numbers.data_ptr(), ranges.data_ptr()
        table[at.LARGEST] = self._library.largest
        table[at.LINEAR_INPUT], table[at.LINEAR_ROWS] = x.data_ptr(), rows
        scratch.tell(table)
        self._library.run(kernel, table)


def aligned_bytes(size: int) -> Tensor:
    """So many bytes, from the beginning of a cache line on."""
    whole = torch.empty(size + at.LINE, dtype=torch.uint8)
    first = -whole.data_ptr() % at.LINE
    return whole[first : first + size]


class ThreadScratch:
    """What threads need each for products and, at other times, for so many numbers."""

    def __init__(self, threads: int, floats: int) -> None:
        numbers = 4 * max((at.ROWS + 1) * at.COLUMNS, floats)
        self._stride = -(-numbers // at.LINE) * at.LINE
        self._kept = aligned_bytes(threads * self._stride)

    def tell(self, table: NDArray[np.int64]) -> None:
        table[at.SCRATCH] = self._kept.data_ptr()
        table[at.SCRATCH_STRIDE] = self._stride
