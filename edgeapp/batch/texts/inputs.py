"""Text files as units to translate: lines, or paragraphs."""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from edgeapp.documents.text_encoding import UTF_8, LineDecoder, TextEncoding, stated_encoding
from pipelines import InputError

__all__ = ["TextUnit", "paragraphs", "read_head", "read_units"]

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class TextUnit:
    """A part of the input that becomes one line of the output.

    Attributes:
        text: Without its line ending.
        ending: "\\n", "\\r\\n", or "" at the end of a file.
        number: Number of its first line in the input, from 1.
        size: Bytes of input, with the ending.
    """

    text: str
    ending: str
    number: int
    size: int


def read_units(
    file: BinaryIO,
    *,
    document: bool = False,
    head: bytes = b"",
    name: str = "the text",
    encoding: TextEncoding | None = None,
    language: str | None = None,
) -> Iterator[TextUnit | None]:
    """The units of a file as they arrive; None before each read that would block.

    Only a line feed ends a line, so that no other control character changes the number of lines.

    Args:
        file: An unbuffered binary file, a pipe or stdin.
        document: Join wrapped lines into paragraphs, which are separated by empty lines.
        head: The first bytes of the input, where they have been read from the file already.
        name: Name of the input, for messages.
        encoding: Its encoding; None if that shows only as the lines come.
        language: Code of its language, or None.

    Raises:
        InputError: A line cannot be decoded.
    """
    units = _lines(file, head, name, encoding, language)
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
    )


def _lines(
    file: BinaryIO,
    head: bytes,
    name: str,
    encoding: TextEncoding | None,
    language: str | None,
) -> Iterator[TextUnit | None]:
    number, rest = 0, b""
    decoder: LineDecoder | None = None
    codec = None  # of wide characters, which are recoded in UTF-8 as they come
    recoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")()
    for chunk in chain([head] if head else [], _chunks(file)):
        if chunk is None:
            yield None
            continue
        if decoder is None:
            encoding = stated_encoding(chunk) or encoding
            chunk = chunk[len(encoding.mark) :] if encoding else chunk
            if encoding is not None and encoding.wide:
                codec, encoding = encoding.codec, UTF_8
                recoder = codecs.getincrementaldecoder(codec)()
            decoder = LineDecoder(name, encoding, language)
        if codec is not None:
            chunk = _recoded(recoder, chunk, name, number + 1)
        *complete, rest = (rest + chunk).split(b"\n")
        for raw in complete:
            number += 1
            yield _unit(decoder.decode(raw, number, chunk), "\n", number, raw, codec)
    if codec is not None:
        _recoded(recoder, b"", name, number + 1)
    if rest and decoder is not None:
        yield _unit(decoder.decode(rest, number + 1), "", number + 1, rest, codec)


def _recoded(recoder: codecs.IncrementalDecoder, chunk: bytes, name: str, number: int) -> bytes:
    """Return a chunk of UTF-16 or UTF-32 as UTF-8. The last chunk is empty."""
    try:
        return recoder.decode(chunk, final=not chunk).encode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}, line {number} or below: some bytes are not {error.encoding.upper()} text"
        ) from None


def _unit(text: str, ending: str, number: int, raw: bytes, codec: str | None) -> TextUnit:
    size = len(raw) + len(ending)
    if codec is not None:
        size = len(f"{text}{ending}".encode(codec))
    if ending and text.endswith("\r"):
        text, ending = text[:-1], "\r\n"
    return TextUnit(text, ending, number, size)


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
