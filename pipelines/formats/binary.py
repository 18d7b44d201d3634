"""A binary file read value by value, never beyond its end."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import CheckpointError
from pipelines.json_files import check_regular

_MOST_BYTES = 1 << 40  # of one file of weights
_LONGEST_TEXT = 1 << 16
_MOST_DIMENSIONS = 8
_LARGEST_DIMENSION = 1 << 31


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies in a file.

    Attributes:
        kind: The format's name of its numbers, such as "float16" or "q5_0".
        shape: In the order of numpy: the last dimension is contiguous.
        offset: Of its first byte in the file.
        size: In bytes.
    """

    kind: str
    shape: tuple[int, ...]
    offset: int
    size: int


class BinaryReader:
    """Reads little-endian values. Every read checks the end of the file before it allocates.

    Raises:
        CheckpointError: From every method, when the file ends too early or a value is impossible.
    """

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file, self.path, self.size = file, path, size

    @property
    def position(self) -> int:
        return self._file.tell()

    def __enter__(self) -> BinaryReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def refuse(self, reason: str) -> CheckpointError:
        """The error for this file. reason: the end of a sentence."""
        return CheckpointError(f"{self.path} is damaged: {reason}")

    def bytes(self, count: int) -> bytes:
        """So many bytes."""
        self.check_room(count)
        return self._file.read(count)

    def values(self, form: str) -> tuple[Any, ...]:
        """Values of a struct format, such as "3i"."""
        form = f"<{form}"
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def value(self, form: str) -> Any:
        """One value of a struct format, such as "I"."""
        return self.values(form)[0]

    def count(self, form: str, largest: int, what: str) -> int:
        """A number of things that follow, from 0 to `largest`."""
        number = int(self.value(form))
        if not 0 <= number <= largest:
            raise self.refuse(f"it announces {number} {what}")
        return number

    def text(self, form: str, largest: int = _LONGEST_TEXT) -> str:
        """A text after its length in bytes; a terminating zero byte is dropped."""
        content = self.bytes(self.count(form, largest, "bytes of text"))
        return content.removesuffix(b"\0").decode("utf-8", errors="replace")

    def shape(self, form: str, dimensions: int) -> tuple[int, ...]:
        """The sizes of so many dimensions."""
        if not 0 <= dimensions <= _MOST_DIMENSIONS:
            raise self.refuse(f"a tensor has {dimensions} dimensions")
        sides = self.values(f"{dimensions}{form}")
        if not all(0 < side < _LARGEST_DIMENSION for side in sides):
            raise self.refuse(f"a tensor has the shape {list(sides)}")
        return tuple(map(int, sides))

    def array(self, kind: str, shape: tuple[int, ...], size: int) -> StoredArray:
        """The array that begins here; it is skipped."""
        self.check_room(size)
        stored = StoredArray(kind, shape, self.position, size)
        self._file.seek(size, 1)
        return stored

    def seek(self, offset: int) -> None:
        """Go to an offset from the start."""
        if not 0 <= offset <= self.size:
            raise self.refuse(f"a position {offset} lies outside its {self.size} bytes")
        self._file.seek(offset)

    def check_room(self, count: int) -> None:
        """Check that so many bytes follow."""
        if count < 0 or self.position + count > self.size:
            raise self.refuse(f"it ends after {self.size} bytes, in the middle of a value")


def open_binary(path: Path) -> BinaryReader:
    """Open a file.

    Raises:
        CheckpointError: It is no regular file, or cannot be opened.
    """
    try:
        check_regular(path, _MOST_BYTES)
        return BinaryReader(path.open("rb"), path, path.stat().st_size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(f"{path} cannot be read: {reason}") from error


def read_bytes(path: Path, offset: int, count: int) -> NDArray[np.uint8]:
    """So many bytes of a file from an offset.

    Raises:
        CheckpointError: It is shorter than when its header was read.
    """
    content = np.fromfile(path, np.uint8, count, offset=offset)
    if len(content) != count:
        raise CheckpointError(f"{path} is damaged: it became shorter while it was read")
    return content
