"""How near a step comes to what the memory allows."""

from __future__ import annotations

import time

from tests.benchmarks.comparison.shapes import Shape

__all__ = ["bandwidth", "step_bytes"]

_BUFFER_BYTES = 1 << 30  # far more than any cache holds
_LOOKS = 7


def step_bytes(shape: Shape, batch: int, weight: float, number: float) -> float:
    """What a decoding step reads at least: every weight of the decoder and of the output once,
    and of each row the keys and values of its source.

    weight, number: bytes of a weight, and of a number in these keys and values.
    """
    config = shape.config
    width, layers = int(config["d_model"]), int(config["decoder_layers"])
    # Query, key, value and output for the row itself; query and output for its source.
    attention = 6 * width * width
    weights = layers * (attention + 2 * width * int(config["decoder_ffn_dim"]))
    weights += width * int(config["vocab_size"])
    source = shape.frames // 2 if shape.kind == "whisper" else 30
    return weights * weight + batch * layers * 2 * source * width * number


def bandwidth(device: str) -> float:
    """Bytes a second that all threads together, or the GPU, read from memory: the best of several
    sums."""
    import torch

    buffer = torch.ones(_BUFFER_BYTES // 4, device=device)
    best = 0.0
    for _ in range(_LOOKS):
        began = time.perf_counter()
        float(buffer.sum())  # waits for it
        best = max(best, _BUFFER_BYTES / (time.perf_counter() - began))
    return best
