"""int8 weights on a CPU: quantization, fbgemm's layout, and a test of its accumulators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pipelines.notices import ignore_warning

# Rows quantized at a time: an embedding of 58,000 tokens takes 119 MB as float32.
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A weight matrix in int8, with one scale per row (symmetric: the zero point is 0).

    Attributes:
        numbers: int8 [out, in].
        scales: float32 [out]; the weights are numbers × scales.
    """

    numbers: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    def __getitem__(self, rows: slice | Tensor) -> QuantizedWeight:
        return QuantizedWeight(self.numbers[rows], self.scales[rows])

    def __mul__(self, factor: float) -> QuantizedWeight:
        return replace(self, scales=self.scales * factor)

    def to(self, device: torch.device) -> QuantizedWeight:
        return QuantizedWeight(self.numbers.to(device), self.scales.to(device))


def quantize_weight(weight: Tensor | QuantizedWeight) -> QuantizedWeight:
    """Quantize a matrix [out, in] of any float dtype; a QuantizedWeight is returned as it is."""
    if isinstance(weight, QuantizedWeight):
        return weight
    numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for start in range(0, len(weight), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        part = weight[rows].float().cpu()
        scales[rows] = part.abs().amax(dim=1).clamp_min(1e-12) / 127.0
        numbers[rows] = (part / scales[rows, None]).round_()
    return QuantizedWeight(numbers, scales)


def packed(weight: QuantizedWeight, bias: Tensor | None) -> Any:
    """Pack a weight and its bias (float32 [out]) for torch.ops.quantized.linear_dynamic."""
    ignore_warning("torch.quantize_per_tensor, torch.quantize_per_channel and", UserWarning)
    zero_points = torch.zeros(len(weight.scales), dtype=torch.long)
    tensor = torch._make_per_channel_quantized_tensor(weight.numbers, weight.scales, zero_points, 0)
    return torch.ops.quantized.linear_prepack(tensor, bias)


@cache
def fbgemm_overflows() -> bool:
    """Whether fbgemm's sums overflow for 8-bit activations times 8-bit weights on this machine.

    Without VNNI fbgemm adds pairs of products in 16 bits, where the largest do not fit; with 7-bit
    activations they do. Measured with a product, since fbgemm's choice of instructions depends on
    more than the CPU.
    """
    terms = 64
    numbers = torch.full((16, terms), 127, dtype=torch.int8)
    ones = packed(QuantizedWeight(numbers, torch.full((16,), 1 / 127)), None)
    sums = torch.ops.quantized.linear_dynamic(torch.ones(1, terms), ones)
    return bool((sums < 0.9 * terms).any())
