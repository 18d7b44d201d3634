"""whisper.cpp's file: a header of sizes, mel filters, the vocabulary, then the tensors.

The layout is that of whisper.cpp's models/convert-pt-to-ggml.py and quantize.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import CheckpointError
from pipelines.formats.binary import BinaryReader, StoredArray, open_binary, read_bytes
from pipelines.formats.described import GGML_MAGIC
from pipelines.formats.ggml_types import GGML_KINDS, bytes_of, decode
from pipelines.formats.whisper_dims import WhisperDims

_MOST_TOKENS = 1 << 20
_MOST_FILTERS = 1 << 20
_MOST_TENSORS = 100_000


@dataclass(frozen=True)
class GgmlFile:
    """An open file.

    Attributes:
        path: The file.
        dims: The sizes of the model.
        tokens: The bytes of each text token, in the order of the ids.
        arrays: openai-whisper's name → where the tensor lies.
    """

    path: Path
    dims: WhisperDims
    tokens: list[bytes]
    arrays: dict[str, StoredArray]


def array_of(path: Path, name: str, stored: StoredArray) -> NDArray[np.floating]:
    """Read a tensor; the biases of convolutions, [n, 1] in ggml, as [n]."""
    values = decode(stored.kind, read_bytes(path, stored.offset, stored.size), stored.shape)
    is_bias = name.endswith(".bias")
    return values.reshape(-1) if is_bias else values


def read_ggml(path: Path) -> GgmlFile:
    """Read the header of a file, and where its tensors lie.

    Raises:
        CheckpointError: It is not such a file, damaged, or has numbers of an unknown type.
    """
    with open_binary(path) as reader:
        if reader.value("I") != GGML_MAGIC:
            raise CheckpointError(f"{path} is not a model of whisper.cpp")
        vocab, audio_ctx, audio_state, audio_head, audio_layer = reader.values("5i")
        text_ctx, text_state, text_head, text_layer, mels, _ = reader.values("6i")
        if audio_state != text_state:
            raise reader.refuse(f"its sides have the widths {audio_state} and {text_state}")
        dims = WhisperDims.checked(
            str(path),
            vocab_size=vocab,
            mels=mels,
            source_positions=audio_ctx,
            target_positions=text_ctx,
            d_model=audio_state,
            encoder_heads=audio_head,
            decoder_heads=text_head,
            encoder_layers=audio_layer,
            decoder_layers=text_layer,
        )
        rows, columns = reader.values("2i")
        if not 0 <= rows * columns <= _MOST_FILTERS:
            raise reader.refuse(f"it announces mel filters of {rows} × {columns}")
        reader.array("float32", (rows, columns), rows * columns * 4)
        tokens = [
            reader.bytes(reader.count("I", 1 << 16, "bytes of a token"))
            for _ in range(reader.count("i", _MOST_TOKENS, "tokens"))
        ]
        return GgmlFile(path, dims, tokens, _arrays(reader))


def _arrays(reader: BinaryReader) -> dict[str, StoredArray]:
    """The tensors up to the end of the file."""
    arrays: dict[str, StoredArray] = {}
    while reader.position < reader.size:
        dimensions, length, number = reader.values("3i")
        shape = reader.shape("i", dimensions)[::-1]
        if not 0 < length <= 1024 or len(arrays) >= _MOST_TENSORS:
            raise reader.refuse(f"a tensor's name has {length} bytes")
        name = reader.bytes(length).decode("utf-8", errors="replace")
        kind = GGML_KINDS.get(number)
        if kind is None:
            known = ", ".join(GGML_KINDS.values())
            raise CheckpointError(
                f"{reader.path}: {name!r} has ggml's type {number}, which is not read here; "
                f"use a file in one of {known}"
            )
        try:
            size = bytes_of(kind, shape)
        except ValueError as error:
            raise reader.refuse(str(error)) from None
        arrays[name] = reader.array(kind, shape, size)
    return arrays
