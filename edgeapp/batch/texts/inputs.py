"""Text files as units to translate: lines, or paragraphs."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

__all__ = ["TextUnit", "paragraphs", "read_head", "read_units"]

_CHUNK_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextUnit:
    """A part of the input that becomes one line of the output.

    Attributes:
        text: Without its line ending.
        ending: "\\n", "\\r\\n", or "" at the end of a file.
        number: Number of its first line in the input, from 1.
        size: Bytes of input, with the ending.
        damaged: Some bytes were not UTF-8 and were replaced.
    """

    text: str
    ending: str
    number: int
    size: int
    damaged: bool = False


def read_units(
    file: BinaryIO, *, document: bool = False, head: bytes = b""
) -> Iterator[TextUnit | None]:
    """The units of a file as they arrive; None before each read that would block.

    Only a line feed ends a line, so that no other control character changes the number of lines.

    Args:
        file: An unbuffered binary file, a pipe or stdin.
        document: Join wrapped lines into paragraphs, which are separated by empty lines.
        head: The first bytes of the input, where they have been read from the file already.
    """
    units = _lines(file, head)
    return paragraphs(units) if document else units


def read_head(file: BinaryIO, size: int = 4096) -> bytes:
    """The first bytes of a file: at most `size`, fewer where it ends or has no more yet."""
    read, _ = _reader(file)
    return read(size)


def paragraphs(lines: Iterator[TextUnit | None]) -> Iterator[TextUnit | None]:
    """Join lines up to the next empty line; each empty line is a unit of its own."""
    pending: list[TextUnit] = []
    for line in lines:
        if line is None:
            yield None
        elif line.text.strip():
            pending.append(line)
        else:
            if pending:
                yield _join(pending)
                pending = []
            yield line
    if pending:
        yield _join(pending)


def _join(lines: list[TextUnit]) -> TextUnit:
    return TextUnit(
        text=" ".join(line.text.strip() for line in lines),
        ending=lines[-1].ending,
        number=lines[0].number,
        size=sum(line.size for line in lines),
        damaged=any(line.damaged for line in lines),
    )


def _lines(file: BinaryIO, head: bytes) -> Iterator[TextUnit | None]:
    number, rest = 0, b""
    for chunk in chain([head] if head else [], _chunks(file)):
        if chunk is None:
            yield None
            continue
        if not number and not rest:
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        *complete, rest = (rest + chunk).split(b"\n")
        for raw in complete:
            number += 1
            yield _unit(raw, "\n", number)
    if rest:
        yield _unit(rest, "", number + 1)


def _unit(raw: bytes, ending: str, number: int) -> TextUnit:
    size = len(raw) + len(ending)
    if ending and raw.endswith(b"\r"):
        raw, ending = raw[:-1], "\r\n"
    try:
        return TextUnit(raw.decode(), ending, number, size)
    except UnicodeDecodeError:
        return TextUnit(raw.decode(errors="replace"), ending, number, size, damaged=True)


def _chunks(file: BinaryIO) -> Iterator[bytes | None]:
    """Bytes as soon as they are available; None before each read that would block."""
    read, ready = _reader(file)
    while True:
        if not ready():
            yield None
        chunk = read(_CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _reader(file: BinaryIO) -> tuple[Callable[[int], bytes], Callable[[], bool]]:
    """A function that reads available bytes, and one that tells whether a read would not block."""
    try:
        descriptor = file.fileno()
        select.select([descriptor], [], [], 0)
    except (OSError, ValueError):  # no descriptor, or a platform that selects on sockets only
        return file.read, lambda: False
    return (
        lambda size: os.read(descriptor, size),
        lambda: bool(select.select([descriptor], [], [], 0)[0]),
    )
