"""stdin, stdout and stderr as `cat` treats them: closed ones, full disks, readers that are gone."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

from pipelines import InputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["StdoutError", "check_standard_streams", "discard_stdout"]

# A closed stream is opened again, in the opposite direction: using it still fails with EBADF, and
# no file that is opened later gets its number and so its output.
_PLACEHOLDER_FLAGS = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class StdoutError(BrokenPipeError):
    """stdout takes no more output.

    Its errno is not set, because click ends the program with exit code 1 at EPIPE.

    Attributes:
        reason: Of the operating system, such as "No space left on device". None if the reader has
            closed the pipe (`| head`), which needs no message.
    """

    def __init__(self, error: OSError) -> None:
        gone = error.errno == errno.EPIPE
        self.reason = None if gone else error.strerror or type(error).__name__
        super().__init__("the reader of stdout is gone" if gone else str(self.reason))


def check_standard_streams() -> None:
    """Prepare the standard streams of this process; call it before any file is opened.

    Writing to stdout raises StdoutError if it fails. Failures to write to stderr are ignored. A
    closed stream (`>&-`) fails when it is used, and not before. Streams that were replaced, as
    tests do, are left as they are.
    """
    for number in _PLACEHOLDER_FLAGS:
        _open_placeholder(number)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedStdin()), "utf-8")
    sys.stdout = _checked(sys.stdout, sys.__stdout__, _Stdout, 1)
    sys.stderr = _checked(sys.stderr, sys.__stderr__, _Stderr, 2)


def discard_stdout() -> None:
    """Redirect stdout to os.devnull after a StdoutError: what is buffered would raise it again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


class _ClosedStdin(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> NoReturn:
        raise InputError("stdin is closed: pipe the input into it, or name a file")


class _Stdout(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise StdoutError(error) from error


class _Stderr(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _open_placeholder(number: int) -> None:
    """Open os.devnull as a file descriptor that is closed."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, _PLACEHOLDER_FLAGS[number])
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _checked(
    stream: TextIO | None, original: TextIO | None, raw: type[io.FileIO], number: int
) -> TextIO:
    """A text stream on a descriptor, with the settings of the stream that it replaces."""
    if stream is None:
        # Not `number`: if Python found it closed and it is open now, it is another file's.
        placeholder = os.open(os.devnull, _PLACEHOLDER_FLAGS[number])
        return io.TextIOWrapper(io.BufferedWriter(raw(placeholder, "w")), "utf-8")
    if stream is not original or not isinstance(stream, io.TextIOWrapper):
        return stream
    unbuffered = isinstance(stream.buffer, io.FileIO)  # PYTHONUNBUFFERED
    if not unbuffered and type(getattr(stream.buffer, "raw", None)) is not io.FileIO:
        return stream  # on Windows a console has a raw file of its own
    stream.flush()
    file = raw(number, "w", closefd=False)
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=unbuffered,
    )
