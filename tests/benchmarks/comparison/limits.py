"""The lower bound of a decoding step by memory bandwidth."""

from __future__ import annotations

import time

from tests.benchmarks.comparison.shapes import Shape

__all__ = ["bandwidth", "step_bytes"]

_BUFFER_BYTES = 1 << 30  # far larger than any cache
_REPEATS = 7


def step_bytes(shape: Shape, batch: int, weight: float, number: float) -> float:
    """Bytes that a decoding step must read: each weight of the decoder and of the output layer
    once, and the cross-attention keys and values of each row.

    Args:
        shape: The model.
        batch: Number of rows.
        weight: Bytes per weight.
        number: Bytes per number of the keys and values.
    """
    config = shape.config
    width, layers = int(config["d_model"]), int(config["decoder_layers"])
    # Self-attention: query, key, value, output. Cross-attention: query and output.
    attention = 6 * width * width
    weights = layers * (attention + 2 * width * int(config["decoder_ffn_dim"]))
    weights += width * int(config["vocab_size"])
    source = shape.frames // 2 if shape.kind == "whisper" else 30
    return weights * weight + batch * layers * 2 * source * width * number


def bandwidth(device: str) -> float:
    """Bytes per second that all threads together, or the GPU, read from memory.

    The best of several sums over a large buffer.
    """
    import torch

    buffer = torch.ones(_BUFFER_BYTES // 4, device=device)
    best = 0.0
    for _ in range(_REPEATS):
        began = time.perf_counter()
        float(buffer.sum())  # waits for the result
        best = max(best, _BUFFER_BYTES / (time.perf_counter() - began))
    return best
