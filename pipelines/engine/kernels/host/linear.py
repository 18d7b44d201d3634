"""Linear layers with int8 weights: y = x Wᵀ + b, by the compiled kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.host.team_size import KernelRunner
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.weights.quantized import QuantizedWeight, quantize_weight

# Outputs packed at a time. Packing in parts keeps the second copy of the weights small.
_OUTPUTS_AT_ONCE = 64 * abi.PANEL_OUTPUTS

_ARGMAX_DTYPE = abi.dtype_of(abi.ArgmaxRecord)


class CompiledLinear:
    """A linear layer with int8 weights, one scale per output.

    Each row of activations is quantized on the fly to unsigned bytes, with a step and a minimum of
    its own. The weights are packed in panels of `abi.PANEL_OUTPUTS` outputs, inputs padded to a
    multiple of `abi.INPUT_MULTIPLE`.

    Args:
        weight: [outputs, inputs], of any float dtype, or quantized already.
        bias: [outputs] of any float dtype; None for zeros.

    Attributes:
        layer: what the kernels read: addresses and sizes.
        bias: float32 [outputs].
        library: the kernels.
        padded_inputs: number of inputs after padding.
    """

    def __init__(
        self, weight: Tensor | QuantizedWeight, bias: Tensor | None, library: KernelLibrary
    ) -> None:
        self.library = library
        self._runners = {kernel: KernelRunner(library, kernel) for kernel in ("linear", "argmax")}
        self.outputs, self.inputs = weight.shape
        self.padded_inputs = -(-self.inputs // abi.INPUT_MULTIPLE) * abi.INPUT_MULTIPLE
        padded_outputs = -(-self.outputs // abi.PANEL_OUTPUTS) * abi.PANEL_OUTPUTS
        packed = aligned_bytes(padded_outputs * self.padded_inputs)
        scales, sums = torch.zeros(2, self.outputs)
        for start in range(0, self.outputs, _OUTPUTS_AT_ONCE):
            part = slice(start, min(start + _OUTPUTS_AT_ONCE, self.outputs))
            quantized = quantize_weight(weight[part])
            numbers, scales[part] = quantized.numbers, quantized.scales
            sums[part] = numbers.sum(1, dtype=torch.int32).float()
            outputs = -(-len(numbers) // abi.PANEL_OUTPUTS) * abi.PANEL_OUTPUTS
            wide = torch.zeros(outputs, self.padded_inputs, dtype=torch.int8)
            wide[: len(numbers), : self.inputs] = numbers
            # [panels, padded_inputs / group, PANEL_OUTPUTS, group]: dot products take 4 or 8 inputs
            # of an output at a time.
            group = library.group_inputs
            panels = wide.view(-1, abi.PANEL_OUTPUTS, self.padded_inputs // group, group)
            panels = panels.transpose(1, 2)
            target = packed[start * self.padded_inputs : (start + outputs) * self.padded_inputs]
            target.view(torch.int8).view(panels.shape).copy_(panels)
        self.bias = torch.zeros(self.outputs) if bias is None else bias.float().contiguous()
        self._tensors = (packed, scales, sums, self.bias)  # kept alive: `layer` has their addresses
        addresses = [tensor.data_ptr() for tensor in self._tensors]
        self.layer = abi.LinearLayer(*addresses, self.outputs, self.inputs, self.padded_inputs)

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., inputs] → float32 [..., outputs]."""
        y = torch.empty(*x.shape[:-1], self.outputs)
        args = abi.LinearArgs(layer=self.layer, output=y.data_ptr())
        self._run("linear", x, args)
        return y

    def argmax(
        self, x: Tensor, bias: Tensor, exp_sums: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The greatest output of each row, without storing the outputs.

        Args:
            x: [rows, inputs].
            bias: float32 [outputs], used instead of the layer's own.
            exp_sums: whether to compute the sums of exponentials.

        Returns:
            index: int64 [rows], the first of equal outputs.
            value: float32 [rows], the greatest output; NaN if any output of the row is NaN.
            exp_sum: float64 [rows], Σ exp(output − value); undefined without `exp_sums`.
        """
        results = np.empty(len(x), dtype=_ARGMAX_DTYPE)
        parts = -(-self.outputs // (abi.PANEL_OUTPUTS * abi.ARGMAX_PANELS))
        records = np.empty((parts, len(x)), dtype=_ARGMAX_DTYPE)
        args = abi.LinearArgs(layer=self.layer, output=results.ctypes.data, exp_sums=exp_sums)
        args.layer.biases, args.records = bias.data_ptr(), records.ctypes.data
        self._run("argmax", x, args)
        index = torch.from_numpy(results["index"].astype(np.int64))
        value, exp_sum = (torch.from_numpy(results[name].copy()) for name in ("value", "exp_sum"))
        return index, value, exp_sum

    def _run(self, kernel: str, x: Tensor, args: abi.LinearArgs) -> None:
        """Run a kernel on x [..., inputs], with buffers for its quantized rows."""
        x = x.float().contiguous()
        args.rows, args.input = x.numel() // self.inputs, x.data_ptr()
        quantized = quantized_rows(args.rows, self.padded_inputs)
        quant_ranges = torch.empty(args.rows, 2)
        runner = self._runners[kernel]
        scratch = ThreadScratch(runner.threads, 0)
        workspace = args.workspace
        workspace.quantized, workspace.quant_ranges = quantized.data_ptr(), quant_ranges.data_ptr()
        workspace.quant_max = self.library.quant_max
        scratch.write_to(workspace)
        runner.run(args, args.rows)


def aligned_bytes(size: int) -> Tensor:
    """An uninitialized uint8 tensor [size] that starts at a cache line."""
    buffer = torch.empty(size + abi.CACHE_LINE_BYTES, dtype=torch.uint8)
    first = -buffer.data_ptr() % abi.CACHE_LINE_BYTES
    return buffer[first : first + size]


def quantized_rows(rows: int, padded_inputs: int) -> Tensor:
    """An uninitialized buffer for quantized rows, and for those that fill the last tile up."""
    return aligned_bytes((rows + abi.MATRIX_ROWS - 1) * padded_inputs)


class ThreadScratch:
    """Scratch memory of each thread, for matrix products or, at other times, so many float32
    numbers."""

    def __init__(self, threads: int, floats: int) -> None:
        products = 4 * abi.PRODUCT_FLOATS + 2 * abi.TILE_CONFIG_BYTES
        size = max(products, 4 * floats)
        self._stride = -(-size // abi.CACHE_LINE_BYTES) * abi.CACHE_LINE_BYTES
        self._buffer = aligned_bytes(threads * self._stride)

    def write_to(self, workspace: abi.Workspace) -> None:
        """Enter the address of the first thread's buffer, and the size of each."""
        workspace.scratch, workspace.scratch_bytes = self._buffer.data_ptr(), self._stride
