"""int8 on a CPU: weights as numbers and scales, laid out for fbgemm, and what it can add up."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["overflows", "packed", "quantised"]

# A table of 58,000 tokens is quantised in parts of so many rows: as float32 it takes 119 MB.
_ROWS_AT_ONCE = 2048


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[out, in] of any float dtype → int8 of that shape, and what it is to be multiplied with,
    float32 [out]."""
    numbers, scale = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for start in range(0, len(weight), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        part = weight[rows].float().cpu()
        scale[rows] = part.abs().amax(dim=1).clamp_min(1e-12) / 127.0
        numbers[rows] = (part / scale[rows, None]).round_()
    return numbers, scale


def packed(numbers: Tensor, scale: Tensor, bias: Tensor | None) -> Any:
    """The layout that torch.ops.quantized.linear_dynamic reads; bias float32 [out]."""
    with warnings.catch_warnings():  # torch announces the quantised dtypes' successor here
        warnings.simplefilter("ignore")
        nowhere = torch.zeros(len(scale), dtype=torch.long)
        weight = torch._make_per_channel_quantized_tensor(numbers, scale, nowhere, 0)
        return torch.ops.quantized.linear_prepack(weight, bias)


@cache
def overflows() -> bool:
    """Whether 8 bits of activations times 8 bits of weights are too much here.

    Without VNNI fbgemm adds pairs of products in 16 bits, where the largest do not fit; with 7 bits
    of activations they do. Found out by trying, for what it uses depends on more than the CPU.
    """
    terms = 64
    ones = packed(torch.full((16, terms), 127, dtype=torch.int8), torch.full((16,), 1 / 127), None)
    found = torch.ops.quantized.linear_dynamic(torch.ones(1, terms), ones)
    return bool((found < 0.9 * terms).any())
