"""Kernels over single rows: exponentials, activations, norms, and numbers turned into bytes.

Everything is told by its address: an array in Numba is seven numbers, which go over the stack to
whatever is not inlined. Loops may be reordered into vectors (`_FAST`), but NaN stays NaN: whoever
chooses tokens must see that a source is damaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from pipelines.engine.kernels.device.intrinsics import as_float, pointer

__all__ = [
    "activate",
    "sum_exponentials",
    "row_argmax",
    "better",
    "doubles",
    "exponential",
    "floats",
    "greatest",
    "half_floats",
    "integers",
    "normalise",
    "octets",
    "quantise",
    "jit",
    "words",
]

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_ANY = 1 << 40  # the length of arrays whose end nobody looks at

jit = njit(fastmath=_FAST, error_model="numpy")


def _numbers(kind: Any) -> Any:
    @jit
    def at(address: Any) -> Any:
        return carray(pointer(address), (_ANY,), kind)

    return at


floats, doubles = _numbers(np.float32), _numbers(np.float64)
octets, words, integers = _numbers(np.uint8), _numbers(np.int32), _numbers(np.int64)
half_floats = _numbers(np.uint16)  # bfloat16 numbers, as their bits


@jit
def exponential(x: Any) -> Any:
    """e to the x, to 1e-7 of it; at most 1.7e38."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(88.0) if x > np.float32(88.0) else x
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    # Cephes' expf.
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * as_float((np.int32(n) + np.int32(127)) << np.int32(23))


@jit
def _error_function(x: Any) -> Any:
    """erf to 2e-7 (Abramowitz & Stegun 7.1.26)."""
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
    """In place; kind: its place in layout.ACTIVATIONS."""
    x, one, half = floats(address), np.float32(1.0), np.float32(0.5)
    if kind == 0:
        for i in range(count):
            x[i] = half * x[i] * (one + _error_function(x[i] * np.float32(0.70710678)))
    elif kind == 1:  # half of 1 + tanh(z) is 1 / (1 + exp(-2 z))
        for i in range(count):
            z = np.float32(1.59576912) * (x[i] + np.float32(0.044715) * x[i] * x[i] * x[i])
            x[i] = x[i] / (one + exponential(-z))
    elif kind == 2:
        for i in range(count):
            x[i] = np.float32(0.0) if x[i] < np.float32(0.0) else x[i]
    else:
        for i in range(count):
            x[i] = x[i] / (one + exponential(-x[i]))


@jit
def normalise(
    states: Any, result: Any, width: Any, weights: Any, biases: Any, epsilon: Any
) -> None:
    """result = layer norm of the states; they may be the same."""
    x, y, weight, bias = floats(states), floats(result), floats(weights), floats(biases)
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
def _offset_of(bits: Any) -> Any:
    """The bits of a float32 become an integer, and that the bits again, so that greater numbers are
    greater integers; NaN lies beyond ±∞."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


# Comparing numbers goes one by one, for the sake of NaN; comparing integers, sixteen at a time.
@jit
def greatest(address: Any, count: Any) -> Any:
    """NaN where there is one."""
    x = words(address)
    most = _offset_of(x[0])
    for i in range(count):
        most = max(most, _offset_of(x[i]))
    return as_float(_offset_of(most))


@jit
def better(address: Any, count: Any, first: Any, told: Any) -> None:
    """Numbers first … first + count − 1 of a row: told are the greatest so far and its place, the
    first of equal ones; NaN is greater than all."""
    x, best, place = floats(address), floats(told), words(told)
    most, some = best[0], False
    for i in range(count):
        some = some | (not x[i] <= most)
    if some:
        for i in range(count):
            if not x[i] <= best[0] and best[0] == best[0]:
                best[0], place[1] = x[i], first + i
        # What is added up is a share of the greatest.
        doubles(told)[1] *= exponential(most - best[0])


@jit
def sum_exponentials(address: Any, count: Any, told: Any) -> None:
    """Told, behind what `better` says, is the sum of all numbers' exponentials, as shares of that
    of the greatest."""
    x, most, total = floats(address), floats(told)[0], np.float32(0.0)
    if most == -np.inf:
        return
    for i in range(count):
        total += exponential(x[i] - most)
    doubles(told)[1] += total


@jit
def row_argmax(found: Any, parts: Any, stride: Any, result: Any) -> None:
    """What was told in several parts, `stride` bytes apart, becomes what is told of the whole."""
    most, where = floats(found)[0], words(found)[1]
    for part in range(1, parts):
        other, there = floats(found + part * stride)[0], words(found + part * stride)[1]
        greater = not other <= most or (other == most and there < where)
        if greater and most == most:
            most, where = other, there
    total = 0.0
    for part in range(parts):
        own = found + part * stride
        if floats(own)[0] > -np.inf:
            total += doubles(own)[1] * exponential(floats(own)[0] - most)
    floats(result)[0], words(result)[1], doubles(result)[1] = most, where, total


@jit
def _extremes(address: Any, count: Any) -> Any:
    x = words(address)
    least, most = _offset_of(x[0]), _offset_of(x[0])
    for i in range(count):
        least, most = min(least, _offset_of(x[i])), max(most, _offset_of(x[i]))
    return as_float(_offset_of(least)), as_float(_offset_of(most))


@jit
def quantise(states: Any, count: Any, levels: Any, result: Any, told: Any) -> None:
    """Numbers become bytes, 0 … levels; told: where their step and the least of them are put. NaN
    and ∞, which no byte can be, are in these two."""
    x, y, step_and_least = floats(states), octets(result), floats(told)
    least, most = _extremes(states, count)
    step = (most - least) / np.float32(levels)
    step = np.float32(1e-20) if step < np.float32(1e-20) else step
    inverse, half = np.float32(1.0) / step, np.float32(0.5)
    for i in range(count):
        y[i] = np.uint8(np.int32((x[i] - least) * inverse + half))
    step_and_least[0], step_and_least[1] = step, least
