"""ggml's types of numbers: plain ones, and blocks of 32 with a scale of their own.

Each block type is a little-endian structure as in ggml's ggml-common.h:

    q4_0  d: float16, 16 bytes of two 4-bit numbers          value = d * (number - 8)
    q4_1  d, m: float16, 16 bytes of two 4-bit numbers       value = d * number + m
    q5_0  d: float16, 32 high bits, 16 bytes                 value = d * (number - 16)
    q5_1  d, m: float16, 32 high bits, 16 bytes              value = d * number + m
    q8_0  d: float16, 32 int8                                value = d * number
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

BLOCK = 32

# ggml's number of a type → its name here.
GGML_KINDS = {
    0: "float32",
    1: "float16",
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    30: "bfloat16",
}
_PLAIN_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_BLOCK_BYTES = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34}


def bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    """The size of an array in a file.

    Raises:
        ValueError: Its rows are no whole number of blocks. The message is the end of a sentence.
    """
    if kind in _PLAIN_BYTES:
        return math.prod(shape) * _PLAIN_BYTES[kind]
    if not shape or shape[-1] % BLOCK:
        raise ValueError(f"rows of shape {list(shape)} are no whole number of blocks of {BLOCK}")
    return math.prod(shape) // BLOCK * _BLOCK_BYTES[kind]


def decode(kind: str, content: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.floating]:
    """The numbers of an array: float16 where it is stored so, else float32."""
    if kind == "bfloat16":  # the upper half of a float32
        return (content.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind in _PLAIN_BYTES:
        return content.view(np.dtype(kind).newbyteorder("<")).reshape(shape)
    blocks = content.reshape(-1, _BLOCK_BYTES[kind])
    scale = _float16(blocks, 0)
    if kind == "q8_0":
        return (blocks[:, 2:].view(np.int8) * scale).reshape(shape)
    values = _nibbles(blocks[:, -16:]).astype(np.float32)
    if kind.startswith("q5"):
        bits = np.unpackbits(blocks[:, -20:-16], axis=1, bitorder="little")
        values += bits * np.float32(16)
    if kind.endswith("_1"):
        return (values * scale + _float16(blocks, 2)).reshape(shape)
    return ((values - (16 if kind == "q5_0" else 8)) * scale).reshape(shape)


def _float16(blocks: NDArray[np.uint8], offset: int) -> NDArray[np.float32]:
    """A float16 of each block, as float32 [blocks, 1]."""
    halves = np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2")
    return halves.astype(np.float32)


def _nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[blocks, 16] → [blocks, 32]: the lower halves of all bytes, then the upper ones."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1)
