"""Output files: named after their input, written completely or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from edgeapp.documents.subtitle_file import is_subtitle_file
from edgeapp.output_errors import output_errors
from pipelines import OptionError, OutputError

__all__ = [
    "FOREIGN_SUFFIXES",
    "check_no_collisions",
    "output_names",
    "plan_translations",
    "prepare_folder",
    "write_atomically",
]

FOREIGN_SUFFIXES = frozenset(
    ".7z .bmp .bz2 .doc .docx .epub .exe .gif .gz .jpeg .jpg .mobi .odp .ods .odt .pdf .png .ppt "
    ".pptx .rar .rtf .svg .tar .tgz .tif .tiff .webp .xls .xlsx .xz .zip".split()
)
"""Suffixes of documents, pictures and archives, which text is not written to."""


def prepare_folder(folder: Path) -> None:
    """Create an output folder.

    Raises:
        OutputError: It cannot be created or written to. Called before any work is done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be created: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} cannot be written to: choose another with -o")


def output_names(inputs: Sequence[str]) -> list[str]:
    """A unique base name for the results of each input ("-" is stdin).

    The name of the input without its suffix; with the suffix where two inputs share a stem; with
    a number where the whole names are equal.
    """
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


def plan_translations(
    inputs: Sequence[str], output: str | None, *, subtitles: bool = True
) -> list[Callable[[str], Path] | None]:
    """Where the translation of each text file goes.

    Args:
        inputs: Paths; "-" is stdin.
        output: A file, or a folder, which is created. None is stdout, for one input only;
            translations of subtitles lie beside them.
        subtitles: Whether subtitle files are translated as such.

    Returns:
        For each input a function from the target language to the path of its output: the
        language is part of the name, and is known only after the model is loaded. None is stdout.

    Raises:
        OptionError: Several inputs without a folder, or the output is the input.
        OutputError: The folder cannot be created or written to.
    """
    if output is None:
        if subtitles and all(map(is_subtitle_file, inputs)):
            paths = [Path(name) for name in inputs]
            return [partial(_new_translation_path, p.parent, p.stem, p.suffix) for p in paths]
        if len(inputs) > 1:
            raise OptionError("several files need a folder to write to: -o FOLDER")
        return [None]
    path = Path(output)
    if len(inputs) == 1 and not path.is_dir() and not output.endswith(("/", os.sep)):
        if path.suffix.lower() in FOREIGN_SUFFIXES:
            raise OptionError(f"{output}: {path.suffix.lower()} files cannot be written, only text")
        prepare_folder(path.parent)
        check_no_collisions([path], inputs)
        return [lambda _: path]
    prepare_folder(path)
    suffixes = [Path(name).suffix or ".txt" if name != "-" else ".txt" for name in inputs]
    return [
        partial(_translation_path, path, name.removesuffix(suffix), suffix)
        for name, suffix in zip(output_names(inputs), suffixes, strict=True)
    ]


def _translation_path(folder: Path, stem: str, suffix: str, language: str) -> Path:
    return folder / f"{stem}.{language}{suffix}"


def _new_translation_path(folder: Path, stem: str, suffix: str, language: str) -> Path:
    """As _translation_path, for a name that nobody has given. Raises OptionError if it exists."""
    path = _translation_path(folder, stem, suffix, language)
    if path.exists():
        raise OptionError(f"{path} exists, perhaps corrected by hand: -o {path} replaces it")
    return path


def check_no_collisions(outputs: Sequence[Path], inputs: Sequence[str] = ()) -> None:
    """Check that every output is a file of its own.

    Raises:
        OptionError: Two outputs have the same path, or an output is one of the inputs.
    """
    # Not Path.resolve, which raises for a link to itself; reading such an input fails later.
    sources = {os.path.realpath(name) for name in inputs if name != "-"}
    taken = set[Path]()
    for path in outputs:
        if os.path.realpath(path) in sources:
            raise OptionError(f"{path} is the input itself: choose another name with -o")
        if path in taken:
            raise OptionError(f"two inputs would be written to {path}: rename one of them")
        taken.add(path)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, under a temporary name, then rename it.

    A reader sees the old file or the new one, never a part of it.

    Raises:
        OutputError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with output_errors(path):
        try:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
