"""One wording for files that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines import OutputError

__all__ = ["check_folder", "output_errors"]


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
