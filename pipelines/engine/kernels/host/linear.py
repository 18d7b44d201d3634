"""Linear layers with int8 weights: y = x Wᵀ + b, by the compiled kernels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.loader import KernelLibrary
from pipelines.engine.weights.quantized import QuantizedWeight, quantize_weight

__all__ = ["CompiledLinear", "ThreadScratch", "aligned_bytes"]

# Outputs packed at a time. Packing in parts keeps the second copy of the weights small.
_PACK_ROWS = 64 * abi.COLUMNS

# Result of the argmax kernel for one row: the greatest output, its index, and the sum of the
# exponentials of all outputs relative to it.
_ARGMAX_DTYPE = np.dtype([("value", np.float32), ("place", np.int32), ("total", np.float64)])


class CompiledLinear:
    """A linear layer with int8 weights, one scale per output.

    Each row of activations is quantized on the fly to unsigned bytes, with a step and a minimum of
    its own. The weights are packed in panels of `abi.COLUMNS` outputs, inputs padded to a multiple
    of `abi.DEPTH`.

    Args:
        weight: [outputs, inputs], of any float dtype, or quantized already.
        bias: [outputs] of any float dtype; None for zeros.

    Attributes:
        op: int64 [abi.PRODUCT], the kernels' description of this layer: addresses and sizes.
        bias: float32 [outputs].
        padded: inputs after padding.
    """

    def __init__(
        self, weight: Tensor | QuantizedWeight, bias: Tensor | None, library: KernelLibrary
    ) -> None:
        self._library = library
        self.outputs, self.inputs = weight.shape
        self.padded = -(-self.inputs // abi.DEPTH) * abi.DEPTH
        columns = -(-self.outputs // abi.COLUMNS) * abi.COLUMNS
        packed, scales, sums = aligned_bytes(columns * self.padded), *torch.zeros(2, self.outputs)
        for start in range(0, self.outputs, _PACK_ROWS):
            part = slice(start, min(start + _PACK_ROWS, self.outputs))
            quantized = quantize_weight(weight[part])
            numbers, scales[part] = quantized.numbers, quantized.scales
            sums[part] = numbers.sum(1, dtype=torch.int32).float()
            rows = -(-len(numbers) // abi.COLUMNS) * abi.COLUMNS
            wide = torch.zeros(rows, self.padded, dtype=torch.int8)
            wide[: len(numbers), : self.inputs] = numbers
            # [panels, padded / 4, COLUMNS, 4]: dot products take 4 inputs of an output at a time.
            panels = wide.view(-1, abi.COLUMNS, self.padded // 4, 4).transpose(1, 2)
            target = packed[start * self.padded : (start + rows) * self.padded]
            target.view(torch.int8).view(panels.shape).copy_(panels)
        self.bias = torch.zeros(self.outputs) if bias is None else bias.float().contiguous()
        self._tensors = (packed, scales, sums, self.bias)  # kept alive: `op` has their addresses
        addresses = [tensor.data_ptr() for tensor in self._tensors]
        self.op = np.array([*addresses, self.outputs, self.inputs, self.padded], dtype=np.int64)

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., inputs] → float32 [..., outputs]."""
        y = torch.empty(*x.shape[:-1], self.outputs)
        table = np.empty(abi.LINEAR, dtype=np.int64)
        table[abi.LINEAR_OUTPUT], table[abi.LINEAR_OP :] = y.data_ptr(), self.op
        self._run("linear", x, table)
        return y

    def argmax(
        self, x: Tensor, bias: Tensor, totals: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The greatest output of each row, without storing the outputs.

        Args:
            x: [rows, inputs].
            bias: float32 [outputs], used instead of the layer's own.
            totals: whether to compute the sums of exponentials.

        Returns:
            index: int64 [rows], the first of equal outputs.
            value: float32 [rows], the greatest output; NaN if any output of the row is NaN.
            total: float64 [rows], Σ exp(output − value); undefined without `totals`.
        """
        table = np.empty(abi.LINEAR, dtype=np.int64)
        results = np.empty(len(x), dtype=_ARGMAX_DTYPE)
        partial = np.empty((torch.get_num_threads(), len(x)), dtype=_ARGMAX_DTYPE)
        table[abi.LINEAR_OUTPUT], table[abi.LINEAR_FOUND] = results.ctypes.data, partial.ctypes.data
        table[abi.LINEAR_TOTALS], table[abi.LINEAR_OP :] = totals, self.op
        table[abi.LINEAR_OP + abi.BIASES] = bias.data_ptr()
        self._run("argmax", x, table)
        index = torch.from_numpy(results["place"].astype(np.int64))
        value, total = (torch.from_numpy(results[name].copy()) for name in ("value", "total"))
        return index, value, total

    def _run(self, kernel: str, x: Tensor, table: NDArray[np.int64]) -> None:
        """Run a kernel on x [..., inputs], with buffers for its quantized rows."""
        x = x.float().contiguous()
        rows = x.numel() // self.inputs
        numbers, ranges = torch.empty(rows * self.padded, dtype=torch.uint8), torch.empty(rows, 2)
        scratch = ThreadScratch(torch.get_num_threads(), 0)
        table[abi.QUANTIZED], table[abi.RANGES] = numbers.data_ptr(), ranges.data_ptr()
        table[abi.LARGEST] = self._library.largest
        table[abi.LINEAR_INPUT], table[abi.LINEAR_ROWS] = x.data_ptr(), rows
        scratch.write_to(table)
        self._library.run(kernel, table)


def aligned_bytes(size: int) -> Tensor:
    """An uninitialized uint8 tensor [size] that starts at a cache line."""
    buffer = torch.empty(size + abi.LINE, dtype=torch.uint8)
    first = -buffer.data_ptr() % abi.LINE
    return buffer[first : first + size]


class ThreadScratch:
    """Scratch memory of each thread, for matrix products or, at other times, other temporaries.

    Args:
        threads: number of threads.
        floats: float32 numbers that the other temporaries of a thread take.
    """

    def __init__(self, threads: int, floats: int) -> None:
        size = 4 * max((abi.ROWS + 1) * abi.COLUMNS, floats)
        self._stride = -(-size // abi.LINE) * abi.LINE
        self._buffer = aligned_bytes(threads * self._stride)

    def write_to(self, table: NDArray[np.int64]) -> None:
        """Enter the address and the stride in bytes into a kernel's table."""
        table[abi.SCRATCH] = self._buffer.data_ptr()
        table[abi.SCRATCH_STRIDE] = self._stride
