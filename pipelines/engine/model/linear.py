"""Linear layers: one call, y = x Wᵀ + b, over the weight layouts and kernels of each precision."""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.loader import load_kernels
from pipelines.engine.model.precision import StackPrecision
from pipelines.engine.weights.quantised import (
    QuantisedWeight,
    fbgemm_overflows,
    packed,
    quantise_weight,
)

__all__ = ["Linear", "make_linear"]

# How many rows oneDNN should lay the weights out for. The layout for 8 rows was as fast as one
# made to measure at 1, 25, 200 and 1,500 rows.
_PACKED_ROWS = 8

# Weights of up to so many numbers are kept in a second layout for single rows: there its kernel
# took 13 µs for 384 × 384 and 44 for 512 × 2048 where fbgemm's took 25 and 55, but no longer less
# for 768 × 3072. In a whole step of whisper-tiny it saves a sixth.
_SMALL = 2**20


class Linear(Protocol):
    """x [..., in] → [..., out], in the dtype of x."""

    def __call__(self, x: Tensor) -> Tensor: ...


def make_linear(
    weight: Tensor | QuantisedWeight,
    bias: Tensor | None,
    side: StackPrecision,
    device: torch.device,
) -> Linear:
    """The linear layer that a plan asks for; weight [out, in], bias [out] in any float dtype. For
    int8, weights may be so already."""
    if side.kernel == "int8" and device.type == "cpu":
        kernels = load_kernels()
        return _Int8(weight, bias) if kernels is None else CompiledLinear(weight, bias, kernels)
    if side.kernel == "int8":
        return _Int8Weights(weight, bias, side.activations, device)
    assert isinstance(weight, Tensor), "nothing else is made of int8"
    if side.kernel == "half":
        return _HalfWeights(weight, bias)
    if side.kernel == "packed":
        return _Packed(weight, bias, side.weights)
    return _Dense(weight, bias, side.weights, device)


class _Dense:
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
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self._dtype), self._weight, self._bias, "none", [], ""
        )
        return y.to(x.dtype)


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
    """Where kernels of our own cannot be had: int8 weights with a scale per output. Activations are
    quantised on the fly, to 8 bits or (narrow) 7; single rows on small weights stay bfloat16."""

    def __init__(self, weight: Tensor | QuantisedWeight, bias: Tensor | None) -> None:
        whole = quantise_weight(weight)
        self._bias = None if bias is None else bias.float()
        self._packed, self._narrow = packed(whole, self._bias), fbgemm_overflows()
        self._outputs = len(whole.scales)
        small = whole.numbers.numel() <= _SMALL
        self._small = (whole.numbers, whole.scales.bfloat16()) if small else None
        # Without the packet's detour for fake objects, which costs 2 µs a call.
        self._multiply = torch.ops.quantized.linear_dynamic.default._op

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            if self._small is None:
                # fbgemm makes numbers of NaN, or raises an error where there is nothing else.
                if not math.isfinite(x.sum().item()):
                    return x.new_full((*x.shape[:-1], self._outputs), torch.nan)
                whole: Tensor = self._multiply(x, self._packed, self._narrow)
                return whole
            flat = x if x.dim() == 2 else x.view(1, -1)
            y = torch._weight_int8pack_mm(flat.bfloat16(), *self._small)
            y = y.float() if self._bias is None else self._bias + y
            return y if x.dim() == 2 else y.view(*x.shape[:-1], -1)
        # One scale serves the whole of x: the rows are brought to one size, and back, which the
        # bias, added in between, must not follow. (The norm of order infinity took nine times as
        # long as these two operations.) NaN is in the peak of its row and comes back with it.
        peak = x.abs().amax(dim=-1, keepdim=True).clamp_min_(1e-12)
        y = self._multiply((x / peak).nan_to_num_(0.0), self._packed, self._narrow)
        return y.mul_(peak) if self._bias is None else torch.lerp(self._bias, y, peak, out=y)


class _Int8Weights:
    """int8 weights on a GPU, widened at use: saves memory, not time."""

    def __init__(
        self,
        weight: Tensor | QuantisedWeight,
        bias: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        whole = quantise_weight(weight).to(device)
        self._weight, self._scale = whole.numbers, whole.scales.to(dtype)
        self._bias = None if bias is None else bias.to(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        # Scaled before the product: sums of bare int8 leave float16's range.
        weight = self._weight.to(x.dtype) * self._scale[:, None]
        return F.linear(x, weight, self._bias)
