"""Operations on single rows: exponential, activations, layer norm, argmax, quantization.

Rows are passed as addresses (see `views`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.engine.kernels.device.ir import (
    argmax_records,
    as_float,
    f32,
    i32,
    jit,
    stored_byte,
    stored_minimum,
    u8,
)


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
    states: Any, result: Any, d_model: Any, weights: Any, biases: Any, epsilon: Any
) -> None:
    """result [d_model] = layer norm of states [d_model]; both may be the same buffer."""
    x, y, weight, bias = f32(states), f32(result), f32(weights), f32(biases)
    total = np.float32(0.0)
    for i in range(d_model):
        total += x[i]
    mean = total / np.float32(d_model)
    squares = np.float32(0.0)
    for i in range(d_model):
        squares += (x[i] - mean) * (x[i] - mean)
    factor = np.float32(1.0) / np.sqrt(squares / np.float32(d_model) + np.float32(epsilon))
    for i in range(d_model):
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
    """Update an ArgmaxRecord with outputs first … first + count − 1 of a row, float32 [count].

    NaN counts as larger than all numbers.
    """
    x, best = f32(address), argmax_records(record)[0]
    before, any_larger = best.value, False
    for i in range(count):
        any_larger = any_larger | (not x[i] <= before)
    if any_larger:
        for i in range(count):
            if not x[i] <= best.value and best.value == best.value:
                best.value, best.index = x[i], first + i
        if best.exp_sum != 0.0:  # rescale the sum to the new maximum
            best.exp_sum *= exponential(before - best.value)


@jit
def update_exp_sum(address: Any, count: Any, record: Any) -> None:
    """Add exp(output − value) of float32 [count] to a record that `update_argmax` updated."""
    x, best, total = f32(address), argmax_records(record)[0], np.float32(0.0)
    largest = best.value
    if largest == -np.inf:
        return
    for i in range(count):
        total += exponential(x[i] - largest)
    best.exp_sum += total


@jit
def merge_argmax(records: Any, row: Any, rows: Any, count: Any, result: Any) -> None:
    """result [row] = the merged records [count, rows] of one row."""
    parts, merged = argmax_records(records), argmax_records(result)[row]
    largest, index = parts[row].value, parts[row].index
    for number in range(1, count):
        part = parts[number * rows + row]
        larger = not part.value <= largest or (part.value == largest and part.index < index)
        if larger and largest == largest:
            largest, index = part.value, part.index
    total = 0.0
    for number in range(count):
        part = parts[number * rows + row]
        if part.value > -np.inf:
            total += part.exp_sum * exponential(part.value - largest)
    merged.value, merged.index, merged.exp_sum = largest, index, total


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
    """uint8 [count] = round((values − minimum) / step), 0 … levels; signed bytes are 128 less.

    quant_range: float32 [2] for step and minimum, with which the product is scaled back. NaN and
    ∞, which have no uint8, reach the product through these two.
    """
    x, y, step_and_minimum = f32(values), u8(result), f32(quant_range)
    smallest, largest = _min_max(values, count)
    step = (largest - smallest) / np.float32(levels)
    step = np.float32(1e-20) if step < np.float32(1e-20) else step
    inverse, half = np.float32(1.0) / step, np.float32(0.5)
    for i in range(count):
        y[i] = stored_byte(np.uint8(np.int32((x[i] - smallest) * inverse + half)))
    step_and_minimum[0], step_and_minimum[1] = step, stored_minimum(smallest, step)
