"""Operations on single rows: exponential, activations, layer norm, argmax, quantization.

Buffers are passed as addresses (int64), not as arrays: an array in Numba is a struct of seven
numbers, which are passed on the stack to functions that are not inlined. `f32(address)` and its
like view an address as an array.

`_FAST` lets LLVM reorder sums, so that loops become vector code, but keeps NaN and ∞: the sampler
must see that a source is damaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from pipelines.engine.kernels.device.intrinsics import as_float, pointer

__all__ = [
    "activate",
    "bf16",
    "exponential",
    "f32",
    "f64",
    "i32",
    "i64",
    "jit",
    "layer_norm",
    "maximum",
    "merge_argmax",
    "quantize",
    "u8",
    "update_argmax",
    "update_exp_sum",
]

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_UNBOUNDED = 1 << 40  # the declared length of arrays; bounds are not checked

jit = njit(fastmath=_FAST, error_model="numpy")


def _view(dtype: Any) -> Any:
    """A function that views an address as an array of this dtype."""

    @jit
    def at(address: Any) -> Any:
        return carray(pointer(address), (_UNBOUNDED,), dtype)

    return at


f32, f64 = _view(np.float32), _view(np.float64)
u8, i32, i64 = _view(np.uint8), _view(np.int32), _view(np.int64)
bf16 = _view(np.uint16)  # the bits of bfloat16 numbers; see `bf16_to_f32`


@jit
def exponential(x: Any) -> Any:
    """exp(x) with relative error 1e-7, for x limited to −87 … 88 (at most 1.7e38)."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(88.0) if x > np.float32(88.0) else x
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    # The polynomial of Cephes' expf.
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * as_float((np.int32(n) + np.int32(127)) << np.int32(23))


@jit
def _erf(x: Any) -> Any:
    """erf(x) with error 2e-7 (Abramowitz & Stegun 7.1.26)."""
    size = abs(x)
    t = np.float32(1.0) / (np.float32(1.0) + np.float32(0.3275911) * size)
    p = np.float32(1.061405429)
    p = p * t + np.float32(-1.453152027)
    p = p * t + np.float32(1.421413741)
    p = p * t + np.float32(-0.284496736)
    p = p * t + np.float32(0.254829592)
    value = np.float32(1.0) - p * t * exponential(-size * size)
    return -value if x < np.float32(0.0) else value


@jit
def activate(kind: Any, address: Any, count: Any) -> None:
    """Apply an activation function in place. kind: its index in abi.ACTIVATIONS."""
    x, one, half = f32(address), np.float32(1.0), np.float32(0.5)
    if kind == 0:  # gelu
        for i in range(count):
            x[i] = half * x[i] * (one + _erf(x[i] * np.float32(0.70710678)))
    elif kind == 1:  # gelu_new, with (1 + tanh(z)) / 2 = 1 / (1 + exp(−2 z))
        for i in range(count):
            z = np.float32(1.59576912) * (x[i] + np.float32(0.044715) * x[i] * x[i] * x[i])
            x[i] = x[i] / (one + exponential(-z))
    elif kind == 2:  # relu; NaN stays NaN
        for i in range(count):
            x[i] = np.float32(0.0) if x[i] < np.float32(0.0) else x[i]
    else:  # silu
        for i in range(count):
            x[i] = x[i] / (one + exponential(-x[i]))


@jit
def layer_norm(
    states: Any, result: Any, width: Any, weights: Any, biases: Any, epsilon: Any
) -> None:
    """result [width] = layer norm of states [width]; both may be the same buffer."""
    x, y, weight, bias = f32(states), f32(result), f32(weights), f32(biases)
    total = np.float32(0.0)
    for i in range(width):
        total += x[i]
    mean = total / np.float32(width)
    squares = np.float32(0.0)
    for i in range(width):
        squares += (x[i] - mean) * (x[i] - mean)
    factor = np.float32(1.0) / np.sqrt(squares / np.float32(width) + np.float32(epsilon))
    for i in range(width):
        y[i] = (x[i] - mean) * factor * weight[i] + bias[i]


@jit
def _order_bits(bits: Any) -> Any:
    """Map the bits of a float32 to an int32 of the same order, and back: it is its own inverse.
    NaN is beyond ±∞."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


# Integers are compared in vector code. A comparison of floats that keeps NaN is not vectorised.
@jit
def maximum(address: Any, count: Any) -> Any:
    """The maximum of float32 [count]; NaN if any is."""
    x = i32(address)
    largest = _order_bits(x[0])
    for i in range(count):
        largest = max(largest, _order_bits(x[i]))
    return as_float(_order_bits(largest))


@jit
def update_argmax(address: Any, count: Any, first: Any, record: Any) -> None:
    """Update a record of `argmax` with outputs first … first + count − 1 of a row.

    record: float32 maximum, int32 index (the first of equal outputs), float64 sum of
    exp(output − maximum). NaN counts as larger than all numbers.
    """
    x, best, index = f32(address), f32(record), i32(record)
    before, any_larger = best[0], False
    for i in range(count):
        any_larger = any_larger | (not x[i] <= before)
    if any_larger:
        for i in range(count):
            if not x[i] <= best[0] and best[0] == best[0]:
                best[0], index[1] = x[i], first + i
        # Rescale the sum to the new maximum.
        f64(record)[1] *= exponential(before - best[0])


@jit
def update_exp_sum(address: Any, count: Any, record: Any) -> None:
    """Add exp(output − maximum) of float32 [count] to a record that `update_argmax` updated."""
    x, largest, total = f32(address), f32(record)[0], np.float32(0.0)
    if largest == -np.inf:
        return
    for i in range(count):
        total += exponential(x[i] - largest)
    f64(record)[1] += total


@jit
def merge_argmax(records: Any, parts: Any, stride: Any, result: Any) -> None:
    """Merge the records of one row by several threads, `stride` bytes apart, into one."""
    largest, index = f32(records)[0], i32(records)[1]
    for part in range(1, parts):
        other, other_index = f32(records + part * stride)[0], i32(records + part * stride)[1]
        larger = not other <= largest or (other == largest and other_index < index)
        if larger and largest == largest:
            largest, index = other, other_index
    total = 0.0
    for part in range(parts):
        record = records + part * stride
        if f32(record)[0] > -np.inf:
            total += f64(record)[1] * exponential(f32(record)[0] - largest)
    f32(result)[0], i32(result)[1], f64(result)[1] = largest, index, total


@jit
def _min_max(address: Any, count: Any) -> Any:
    """(minimum, maximum) of float32 [count]; NaN is kept as in `maximum`."""
    x = i32(address)
    smallest, largest = _order_bits(x[0]), _order_bits(x[0])
    for i in range(count):
        smallest, largest = min(smallest, _order_bits(x[i])), max(largest, _order_bits(x[i]))
    return as_float(_order_bits(smallest)), as_float(_order_bits(largest))


@jit
def quantize(values: Any, count: Any, levels: Any, result: Any, quant_range: Any) -> None:
    """uint8 [count] = round((values − minimum) / step), 0 … levels.

    quant_range: float32 [2] for step and minimum, with which the product is scaled back. NaN and
    ∞, which have no uint8, reach the product through these two.
    """
    x, y, step_and_minimum = f32(values), u8(result), f32(quant_range)
    smallest, largest = _min_max(values, count)
    step = (largest - smallest) / np.float32(levels)
    step = np.float32(1e-20) if step < np.float32(1e-20) else step
    inverse, half = np.float32(1.0) / step, np.float32(0.5)
    for i in range(count):
        y[i] = np.uint8(np.int32((x[i] - smallest) * inverse + half))
    step_and_minimum[0], step_and_minimum[1] = step, smallest
