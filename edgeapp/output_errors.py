"""Names of output files, and one wording for those that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pipelines import OutputError

__all__ = ["check_folder", "free_name", "output_errors"]


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


def check_folder(path: Path) -> None:
    """Raise OutputError if the folder of an output file does not exist."""
    if not path.parent.is_dir():
        raise OutputError(f"{path} cannot be written: {path.parent} is not a folder")


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
