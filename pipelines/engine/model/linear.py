"""Linear layers y = x Wᵀ + b: one interface over the weight layouts and kernels of precisions."""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.loader import load_kernels
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.quantized import (
    QuantizedWeight,
    fbgemm_overflows,
    packed,
    quantize_weight,
)

# Rows that oneDNN optimizes the weight layout for. The layout for 8 rows was as fast as one made
# for the actual number at 1, 25, 200 and 1,500 rows.
_PACKED_ROWS = 8

# oneDNN compiles a kernel for each number of rows, which takes half a millisecond, and never frees
# its half a megabyte. Numbers of rows are rounded up to this many significant bits, by an eighth at
# most, so that a layer has 80 kernels for up to 4,096 rows. No row's result depends on the others.
_ROW_BITS = 4

# Weights of at most this many numbers are kept in a second layout for single rows. Its kernel took
# 13 µs for 384 × 384 and 44 for 512 × 2048, where fbgemm's took 25 and 55, but was not faster for
# 768 × 3072. It saves a sixth of a whole step of a decoder of 4 layers of 384.
_SINGLE_ROW_WEIGHTS = 2**20


class Linear(Protocol):
    """x [..., in] → [..., out], in the dtype of x."""

    def __call__(self, x: Tensor) -> Tensor: ...


def make_linear(
    weight: Tensor | QuantizedWeight,
    bias: Tensor | None,
    side: StackPrecision,
    device: torch.device,
) -> Linear:
    """Make the linear layer of a precision.

    weight: [out, in] of any float dtype; for int8 it may be quantized already. bias: [out], or
    None.
    """
    if side.kernel == "int8" and device.type == "cpu":
        kernels = load_kernels()
        return _Int8(weight, bias) if kernels is None else CompiledLinear(weight, bias, kernels)
    if side.kernel == "int8":
        return _Int8Weights(weight, bias, side.activation_dtype, device)
    assert isinstance(weight, Tensor), "weights are quantized for int8 only"
    if side.kernel == "half":
        return _HalfWeights(weight, bias)
    if side.kernel == "packed":
        return _Packed(weight, bias, side.weight_dtype)
    return _Dense(weight, bias, side.weight_dtype, device)


class _Dense:
    """torch's own linear."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._weight = weight.to(device, dtype)
        self._bias = None if bias is None else bias.to(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


class _Packed:
    """oneDNN's blocked layout: up to 3 × faster than the plain one for a few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), _PACKED_ROWS)
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.shape[-1]
        padding = _padded_rows(rows) - rows
        source = x.to(self._dtype)
        if padding:
            source = F.pad(source.reshape(rows, -1), (0, 0, 0, padding))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            source, self._weight, self._bias, "none", [], ""
        )
        if padding:
            y = y[:rows].view(*x.shape[:-1], -1)
        return y.to(x.dtype)


def _padded_rows(rows: int) -> int:
    """Return the least number of at most _ROW_BITS significant bits that is not below `rows`."""
    step = 1 << max(0, (rows - 1).bit_length() - _ROW_BITS)
    return -(-rows // step) * step


class _HalfWeights:
    """fp16 weights, float32 arithmetic: half the bytes to read, no fp16 kernels needed."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.quantized.linear_prepack_fp16(
            weight.float(), None if bias is None else bias.float()
        )

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
        return y


class _Int8:
    """int8 weights with a scale per output, by fbgemm: the fallback without compiled kernels.

    Activations are quantized on the fly to 8 bits, or to 7 where 8 overflow. Single rows on small
    weights stay bfloat16.
    """

    def __init__(self, weight: Tensor | QuantizedWeight, bias: Tensor | None) -> None:
        quantized = quantize_weight(weight)
        self._bias = None if bias is None else bias.float()
        self._packed, self._reduce_range = packed(quantized, self._bias), fbgemm_overflows()
        self._outputs = len(quantized.scales)
        small = quantized.numbers.numel() <= _SINGLE_ROW_WEIGHTS
        self._single_row = (quantized.numbers, quantized.scales.bfloat16()) if small else None
        # `_op` skips the dispatch for fake tensors of the OpOverload, which costs 2 µs a call.
        self._multiply = torch.ops.quantized.linear_dynamic.default._op

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            if self._single_row is None:
                # fbgemm turns NaN into numbers, or raises an error if the row is all NaN.
                if not math.isfinite(x.sum().item()):
                    return x.new_full((*x.shape[:-1], self._outputs), torch.nan)
                row: Tensor = self._multiply(x, self._packed, self._reduce_range)
                return row
            flat = x if x.dim() == 2 else x.view(1, -1)
            y = torch._weight_int8pack_mm(flat.bfloat16(), *self._single_row)
            y = y.float() if self._bias is None else self._bias + y
            return y if x.dim() == 2 else y.view(*x.shape[:-1], -1)
        # fbgemm quantizes all of x with one scale. So every row is divided by its peak first, and
        # the product multiplied by it; lerp applies this to the product but not to the bias, which
        # fbgemm has added. (The infinity norm took nine times as long as abs and amax.) NaN is in
        # the peak of its row and comes back with it.
        peak = x.abs().amax(dim=-1, keepdim=True).clamp_min_(1e-12)
        y = self._multiply((x / peak).nan_to_num_(0.0), self._packed, self._reduce_range)
        return y.mul_(peak) if self._bias is None else torch.lerp(self._bias, y, peak, out=y)


class _Int8Weights:
    """int8 weights on a GPU, dequantized at use: saves memory, not time."""

    def __init__(
        self,
        weight: Tensor | QuantizedWeight,
        bias: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        quantized = quantize_weight(weight).to(device)
        self._weight, self._scale = quantized.numbers, quantized.scales.to(dtype)
        self._bias = None if bias is None else bias.to(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        # Scaled before the product: sums of unscaled int8 leave the range of float16.
        weight = self._weight.to(x.dtype) * self._scale[:, None]
        return F.linear(x, weight, self._bias)
