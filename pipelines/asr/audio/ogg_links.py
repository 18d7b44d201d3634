"""The links of a chained Ogg file: recordings behind one another, as radio stations send them.

libav decodes them as one, by the header of the first: a link of another rate would be lost.
"""

from __future__ import annotations

import os
import struct
from typing import Any

_PAGE = struct.Struct(
    "<4sBBqIIIB"
)  # capture, version, flags, granule, serial, number, CRC, segments
_BEGINS_STREAM = 2  # flag
_MAX_LINKS = 10_000  # what follows belongs to the last one


class OggLink:
    """A part of a file as a file for libav."""

    def __init__(self, file: Any, start: int, end: int) -> None:
        self._file, self._start, self._end = file, start, end
        self._position = start
        self.name = getattr(file, "name", "")

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; -1: all."""
        room = max(0, self._end - self._position)
        self._file.seek(self._position)
        content: bytes = self._file.read(room if size < 0 else min(size, room))
        self._position += len(content)
        return content

    def tell(self) -> int:
        """Return the offset within the part."""
        return self._position - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset within the part.

        Raises:
            ValueError: It is before the beginning.
        """
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._position, os.SEEK_END: self._end}
        if base[whence] + offset < self._start:
            raise ValueError("before the beginning")
        self._position = base[whence] + offset
        return self.tell()


def ogg_links(file: Any) -> list[OggLink]:
    """Return the links of an Ogg file that has more than one; else an empty list."""
    position = file.tell()
    try:
        starts, end = _starts(file)
    finally:
        file.seek(position)
    if len(starts) < 2:
        return []
    edges = [*starts, end]
    return [OggLink(file, *edge) for edge in zip(edges, edges[1:], strict=False)]


def _starts(file: Any) -> tuple[list[int], int]:
    """Offsets at which links begin, and the end of the file. What is no page ends the search."""
    end = file.seek(0, os.SEEK_END)
    starts: list[int] = []
    offset, in_header = 0, False
    while offset < end and len(starts) < _MAX_LINKS:
        file.seek(offset)
        header = file.read(_PAGE.size)
        if len(header) < _PAGE.size or not header.startswith(b"OggS"):
            break
        _, _, flags, *_, segments = _PAGE.unpack(header)
        begins = bool(flags & _BEGINS_STREAM)  # all streams of a link begin before their content
        if begins and not in_header:
            starts.append(offset)
        in_header = begins
        offset += _PAGE.size + segments + sum(file.read(segments))
    return starts, end
