"""Writes the weights in whisper.cpp's format: float16, or int8 in blocks (q8_0).

Reference: whisper.cpp's models/convert-h5-to-ggml.py, and ggml's block_q8_0.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from pipelines.asr.audio.features import mel_filters
from tests.benchmarks.comparison.openai_names import openai_name
from tests.benchmarks.comparison.shapes import Shape, ggml_file
from tests.benchmarks.comparison.weights import vocabulary

__all__ = ["write_ggml"]

_MAGIC, _F32, _F16, _Q8 = 0x67676D6C, 0, 1, 8
# Compute type → (file type in the header, type of the matrices).
_KINDS = {"float16": (1, _F16), "q8_0": (7, _Q8)}
_BLOCK = 32


def write_ggml(shape: Shape, folder: Path, compute_type: str) -> None:
    """Write the weights of a folder as one file, in a compute type of GGML_BYTES."""
    kind, matrices = _KINDS[compute_type]
    target = ggml_file(folder, compute_type)
    config = shape.config
    width, layers = int(config["d_model"]), int(config["encoder_layers"])
    mels = int(config.get("num_mel_bins", 80))
    filters = mel_filters(mels).numpy()
    header = (
        int(config["vocab_size"]),
        shape.frames // 2, width, int(config["encoder_attention_heads"]), layers,
        int(config.get("max_target_positions", 448)), width,
        int(config["decoder_attention_heads"]), int(config["decoder_layers"]),
        mels, kind,
    )  # fmt: skip
    with target.open("wb") as file:
        file.write(struct.pack("<I11i", _MAGIC, *header))
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        # whisper.cpp adds the special tokens, from end-of-text on, itself.
        file.write(struct.pack("<i", shape.eos))
        for word, _ in zip(vocabulary(shape), range(shape.eos), strict=False):
            file.write(struct.pack("<i", len(word)) + word.encode())
        for name, tensor in load_file(folder / "model.safetensors").items():
            if name != "proj_out.weight":  # tied to the token embedding
                file.write(_tensor(openai_name(name), tensor.astype(np.float32), matrices))


def _tensor(name: str, values: NDArray[np.float32], matrices: int) -> bytes:
    if "conv" in name:
        kind = _F16 if name.endswith("weight") else _F32
        values = values[:, None] if name.endswith("bias") else values
    else:
        kind = matrices if values.ndim == 2 and "positional" not in name else _F32
    sides = values.shape[::-1]
    header = struct.pack(f"<3i{len(sides)}i", len(sides), len(name), kind, *sides) + name.encode()
    if kind == _Q8:
        return header + _blocks(values)
    return header + values.astype(np.float16 if kind == _F16 else np.float32).tobytes()


def _blocks(values: NDArray[np.float32]) -> bytes:
    """q8_0: blocks of 32 numbers, each a float16 scale and 32 int8."""
    blocks = values.reshape(-1, _BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    numbers = np.round(blocks / np.maximum(scale, 1e-12)).astype(np.int8)
    halves = scale.astype(np.float16)
    return np.concatenate([halves.view(np.int8), numbers], axis=1).tobytes()
