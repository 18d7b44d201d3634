"""How coarse the rounding of int8 activations is on this CPU."""

from __future__ import annotations

from pipelines.engine.kernels.loader import load_kernels

__all__ = ["int8_step"]


def int8_step() -> float:
    """Return the step of int8 activations, relative to that of 8 bits.

    CPUs with AVX2 alone have 7 bits, in the compiled kernels and in torch's: their sums of two
    products are int16.
    """
    kernels = load_kernels()
    return 1.0 if kernels is None else 255 / kernels.quant_max
