"""GGUF files of Whisper: pairs of keys and values, then the tensors, aligned.

The container is ggml's (docs/gguf.md). Files of Whisper have no fixed keys; those of candle and
others have transformers' or openai-whisper's names of tensors, and a config.json beside them.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import CheckpointError
from pipelines.formats.binary import BinaryReader, StoredArray, open_binary
from pipelines.formats.described import GGUF_MAGIC
from pipelines.formats.ggml_types import GGML_KINDS, bytes_of

_VERSIONS = (2, 3)
_MOST_TENSORS = 100_000
_MOST_KEYS = 100_000
_MOST_ITEMS = 1 << 22  # in a list, such as a vocabulary
_DEFAULT_ALIGNMENT = 32
# GGUF's number of a type of values → its struct format; 8 is a text, 9 a list.
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_TEXT, _LIST = 8, 9


def read_gguf(path: Path) -> dict[str, StoredArray]:
    """Where the tensors of a file lie.

    Returns:
        The file's name of a tensor → its place.

    Raises:
        CheckpointError: It is not such a file, damaged, or has numbers of an unknown type.
    """
    with open_binary(path) as reader:
        if reader.value("I") != GGUF_MAGIC or reader.value("I") not in _VERSIONS:
            raise CheckpointError(f"{path} is not a GGUF file of version 2 or 3")
        tensors = reader.count("Q", _MOST_TENSORS, "tensors")
        alignment = _DEFAULT_ALIGNMENT
        for _ in range(reader.count("Q", _MOST_KEYS, "keys")):
            key, value = reader.text("Q"), _value(reader, reader.value("I"))
            if key == "general.alignment" and isinstance(value, int) and 0 < value <= 1 << 16:
                alignment = value
        places = [_place(reader) for _ in range(tensors)]
        start = -(-reader.position // alignment) * alignment
        arrays = {}
        for name, kind, shape, offset in places:
            reader.seek(start + offset)
            arrays[name] = reader.array(kind, shape, bytes_of(kind, shape))
        return arrays


def _value(reader: BinaryReader, kind: int) -> object:
    """A value; lists are skipped."""
    if kind == _TEXT:
        return reader.text("Q", 1 << 24)
    if kind in _SCALARS:
        return reader.value(_SCALARS[kind])
    if kind != _LIST:
        raise reader.refuse(f"a value has the type {kind}")
    item = reader.value("I")
    count = reader.count("Q", _MOST_ITEMS, "items of a list")
    if item in _SCALARS:
        reader.values(f"{count}{_SCALARS[item]}")
    elif item == _TEXT:
        for _ in range(count):
            reader.text("Q")
    else:
        raise reader.refuse(f"a list has items of the type {item}")
    return None


def _place(reader: BinaryReader) -> tuple[str, str, tuple[int, ...], int]:
    """Name, kind, shape and offset of a tensor."""
    name = reader.text("Q", 1024)
    shape = reader.shape("Q", reader.value("I"))[::-1]
    number, offset = reader.values("IQ")
    kind = GGML_KINDS.get(number)
    if kind is None:
        raise CheckpointError(
            f"{reader.path}: {name!r} has ggml's type {number}, which is not read here; "
            f"use a file in one of {', '.join(GGML_KINDS.values())}"
        )
    try:
        bytes_of(kind, shape)
    except ValueError as error:
        raise reader.refuse(str(error)) from None
    return name, kind, shape, offset
