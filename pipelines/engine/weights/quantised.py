"""int8 on a CPU: weights as numbers and scales, laid out for fbgemm, and what it can add up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pipelines.notices import ignore_warning

__all__ = ["QuantisedWeight", "fbgemm_overflows", "packed", "quantise_weight"]

# A table of 58,000 tokens is quantised in parts of so many rows: as float32 it takes 119 MB.
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class QuantisedWeight:
    """Weights as int8 [out, in], and what its rows are to be multiplied with, float32 [out]."""

    numbers: Tensor
    scales: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    def __getitem__(self, rows: slice | Tensor) -> QuantisedWeight:
        return QuantisedWeight(self.numbers[rows], self.scales[rows])

    def __mul__(self, factor: float) -> QuantisedWeight:
        return replace(self, scales=self.scales * factor)

    def to(self, device: torch.device) -> QuantisedWeight:
        return QuantisedWeight(self.numbers.to(device), self.scales.to(device))


def quantise_weight(weight: Tensor | QuantisedWeight) -> QuantisedWeight:
    """[out, in] of any float dtype in int8; itself if it is so already."""
    if isinstance(weight, QuantisedWeight):
        return weight
    numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for start in range(0, len(weight), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        part = weight[rows].float().cpu()
        scales[rows] = part.abs().amax(dim=1).clamp_min(1e-12) / 127.0
        numbers[rows] = (part / scales[rows, None]).round_()
    return QuantisedWeight(numbers, scales)


def packed(weight: QuantisedWeight, bias: Tensor | None) -> Any:
    """The layout that torch.ops.quantized.linear_dynamic reads; bias float32 [out]."""
    ignore_warning("torch.quantize_per_tensor, torch.quantize_per_channel and", UserWarning)
    nowhere = torch.zeros(len(weight.scales), dtype=torch.long)
    whole = torch._make_per_channel_quantized_tensor(weight.numbers, weight.scales, nowhere, 0)
    return torch.ops.quantized.linear_prepack(whole, bias)


@cache
def fbgemm_overflows() -> bool:
    """Whether 8 bits of activations times 8 bits of weights are too much here.

    Without VNNI fbgemm adds pairs of products in 16 bits, where the largest do not fit; with 7 bits
    of activations they do. Found out by trying, for what it uses depends on more than the CPU.
    """
    terms = 64
    numbers = torch.full((16, terms), 127, dtype=torch.int8)
    ones = packed(QuantisedWeight(numbers, torch.full((16,), 1 / 127)), None)
    found = torch.ops.quantized.linear_dynamic(torch.ones(1, terms), ones)
    return bool((found < 0.9 * terms).any())
