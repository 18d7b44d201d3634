"""Text files as units to translate: a line each, or a paragraph each."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["TextUnit", "paragraphs", "read_units"]

_CHUNK = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextUnit:
    """What becomes one line of the output.

    number: its first line in the input, from 1. ending: "\\n", "\\r\\n", or "" at a file's end.
    size: bytes of input. damaged: it held bytes that are not UTF-8, which were replaced.
    """

    text: str
    ending: str
    number: int
    size: int
    damaged: bool = False


def read_units(file: BinaryIO, *, document: bool = False) -> Iterator[TextUnit | None]:
    """The units of a file as they arrive; None wherever reading on would mean to wait.

    Lines end at a line feed and nowhere else, so that no other control character changes how many
    there are. document: wrapped lines are joined into paragraphs, which empty lines separate.
    """
    units = _lines(file)
    return paragraphs(units) if document else units


def paragraphs(lines: Iterator[TextUnit | None]) -> Iterator[TextUnit | None]:
    """Lines joined up to the next empty line; empty lines are units of their own."""
    held: list[TextUnit] = []
    for line in lines:
        if line is None:
            yield None
        elif line.text.strip():
            held.append(line)
        else:
            if held:
                yield _joined(held)
                held = []
            yield line
    if held:
        yield _joined(held)


def _joined(lines: list[TextUnit]) -> TextUnit:
    return TextUnit(
        text=" ".join(line.text.strip() for line in lines),
        ending=lines[-1].ending,
        number=lines[0].number,
        size=sum(line.size for line in lines),
        damaged=any(line.damaged for line in lines),
    )


def _lines(file: BinaryIO) -> Iterator[TextUnit | None]:
    number, rest = 0, b""
    for chunk in _chunks(file):
        if chunk is None:
            yield None
            continue
        if not number and not rest:
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        *whole, rest = (rest + chunk).split(b"\n")
        for raw in whole:
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
    """Whatever is there, as soon as it is there; None before each wait."""
    read, ready = _reader(file)
    while True:
        if not ready():
            yield None
        chunk = read(_CHUNK)
        if not chunk:
            return
        yield chunk


def _reader(file: BinaryIO) -> tuple[Callable[[int], bytes], Callable[[], bool]]:
    """How to read what has arrived, and how to ask whether something has."""
    try:
        descriptor = file.fileno()
        select.select([descriptor], [], [], 0)
    except (OSError, ValueError):  # no descriptor, or a system that asks only of sockets
        return file.read, lambda: False
    return (
        lambda size: os.read(descriptor, size),
        lambda: bool(select.select([descriptor], [], [], 0)[0]),
    )
