"""What `edgeapp translate` reads: a file, a pipe, stdin, or the text of its command line."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edgeapp.batch.texts.inputs import read_head
from edgeapp.documents.text_encoding import (
    NO_HINT,
    EncodingHint,
    TextEncoding,
    file_encoding,
    stated_encoding,
)
from pipelines import InputError

__all__ = ["OpenText", "TextSource"]

# A file with a zero byte among its first bytes is binary, whatever its name is.
_BINARY_CHECK_BYTES = 8192


@dataclass(frozen=True)
class OpenText:
    """An open input.

    Attributes:
        file: Unbuffered binary file, after `head`.
        head: The first bytes, read already.
        size: Bytes in all; None where the input can be read once only: stdin, a pipe, a text.
        encoding: Its encoding; None where that shows only as the lines come.
    """

    file: BinaryIO
    head: bytes
    size: int | None
    encoding: TextEncoding | None = None


@dataclass(frozen=True)
class TextSource:
    """An input to translate.

    Attributes:
        name: Path; "-" is stdin. For messages, "text" if `text` is given.
        text: The text itself, where it stands on the command line.
        title: The name for messages, if it is not `name`.
        hint: What is known about its encoding.
    """

    name: str
    text: str | None = None
    title: str | None = None
    hint: EncodingHint = NO_HINT

    @property
    def shown(self) -> str:
        """The name for messages."""
        if self.title is not None:
            return self.title
        return "stdin" if self.name == "-" and self.text is None else self.name

    def open(self, stack: ExitStack, *, with_head: bool = False) -> OpenText:
        """Open the input.

        Args:
            stack: Closes the file.
            with_head: Read the first bytes, at which a pipe may block.

        Raises:
            InputError: It cannot be read or decoded, or is binary.
        """
        if self.text is not None:
            # Bytes of the command line that are not UTF-8 are kept as they were typed.
            content = f"{self.text}\n".encode("utf-8", "surrogateescape")
            head, rest = (content, b"") if with_head else (b"", content)
            return OpenText(io.BytesIO(rest), head, None)
        if self.name == "-":
            stdin = sys.stdin.buffer
            head = read_head(stdin) if with_head else b""
            return OpenText(stdin, head, None, self.hint.encoding)
        path = Path(self.name)
        try:
            file = stack.enter_context(path.open("rb", buffering=0))
            if not file.seekable():
                head = read_head(file) if with_head else b""
                return OpenText(file, head, None, self.hint.encoding)
            first = file.read(_BINARY_CHECK_BYTES)
            encoding = stated_encoding(first) or self.hint.encoding
            if b"\0" in first and (encoding is None or not encoding.wide):
                raise InputError(f"{path} holds binary data, not text")
            file.seek(0)
            encoding = file_encoding(file, self.shown, hint=self.hint)
            head = read_head(file) if with_head else b""
            return OpenText(file, head, path.stat().st_size, encoding)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
