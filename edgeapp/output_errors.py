"""Names of output files, and one wording for those that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pipelines import OutputError

__all__ = ["check_output", "free_name", "output_errors"]


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """A context in which an OSError becomes an OutputError that names the file.

    Args:
        path: The output file, also where a temporary file beside it is written.

    Raises:
        OutputError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def check_output(path: Path) -> None:
    """Raise OutputError if an output file cannot be written, without touching it."""
    reason = None
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"{path.parent} is not a folder"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "Permission denied"
    if reason is not None:
        raise OutputError(f"{path} cannot be written: {reason}")


def free_name(path: Path, extension: str = "") -> Path:
    """Return the first of talk-2.srt, talk-3.srt … that does not exist, for talk.srt.

    Args:
        path: The name without a number.
        extension: What follows the number, if it is longer than the suffix: .de.srt.
    """
    extension = extension or path.suffix
    stem = path.name.removesuffix(extension)
    names = (path.with_name(f"{stem}-{number}{extension}") for number in count(2))
    return next(name for name in names if not name.exists())
