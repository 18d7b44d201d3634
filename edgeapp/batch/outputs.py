"""Output files: named after their input, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pipelines import OptionError, OutputError

__all__ = ["check_no_collisions", "output_names", "prepare_folder", "write_atomically"]


def prepare_folder(folder: Path) -> None:
    """Make a folder to write into. Raises OutputError, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} cannot be written to: choose another with -o")


def output_names(inputs: Sequence[str]) -> list[str]:
    """What to call each input's results: its name without the last ending, or with it where two
    inputs would otherwise share a name; numbered where even that is the same."""
    paths = [Path("stdin" if name == "-" else name) for name in inputs]
    stems = [path.stem for path in paths]
    names = [
        path.name if stems.count(stem) > 1 else stem
        for path, stem in zip(paths, stems, strict=True)
    ]
    return [
        name if name not in names[:i] else f"{name}.{names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]


def check_no_collisions(outputs: Sequence[Path], inputs: Sequence[str] = ()) -> None:
    """Raises OptionError where two outputs would be one file, or one of them an input."""
    sources = {Path(name).resolve() for name in inputs if name != "-"}
    taken = set[Path]()
    for path in outputs:
        if path.resolve() in sources:
            raise OptionError(f"{path} is the input itself: choose another name with -o")
        if path in taken:
            raise OptionError(f"two inputs would be written to {path}: rename one of them")
        taken.add(path)


def write_atomically(path: Path, text: str) -> None:
    """Write UTF-8 text so that a reader sees the old file or the new one, never half of it.

    Raises OutputError.
    """
    partial = path.with_name(path.name + ".tmp")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
