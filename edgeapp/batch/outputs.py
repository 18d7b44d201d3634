"""Output files: named after their input, written completely or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from edgeapp.documents.subtitle_file import is_subtitle_file
from edgeapp.file_lock import is_at, is_locked, try_lock
from edgeapp.file_names import beside, fitting
from edgeapp.output_errors import output_errors
from pipelines import OptionError, OutputError

__all__ = [
    "FOREIGN_SUFFIXES",
    "check_no_collisions",
    "output_names",
    "plan_translations",
    "prepare_folder",
    "reserved",
    "write_atomically",
]

_TEMPORARY_NAMES = 4

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
    inputs: Sequence[str],
    output: str | None,
    *,
    subtitles: bool = True,
    names: Sequence[str | None] | None = None,
) -> list[Callable[[str], Path] | None]:
    """Where the translation of each text file goes.

    Args:
        inputs: Paths; "-" is stdin.
        output: A file, or a folder, which is created. None is stdout, for one input only;
            translations of subtitles lie beside them.
        subtitles: Whether subtitle files are translated as such.
        names: For each input its name below the output folder, without its suffix; None for an
            input that was given by itself.

    Returns:
        For each input a function from the target language to the path of its output: the
        language is part of the name, and is known only after the model is loaded. None is stdout.

    Raises:
        OptionError: Several inputs without a folder, or the output is the input.
        OutputError: The folder cannot be created or written to.
    """
    names = names or [None] * len(inputs)
    if output is None:
        if subtitles and all(map(is_subtitle_file, inputs)):
            paths = [Path(name) for name in inputs]
            return [partial(_translation_path, p.parent, p.stem, p.suffix) for p in paths]
        if len(inputs) > 1 or names[0] is not None:
            raise OptionError("several files need a folder to write to: -o FOLDER")
        return [None]
    path = Path(output)
    alone = len(inputs) == 1 and names[0] is None
    if alone and not path.is_dir() and not output.endswith(("/", os.sep)):
        if path.suffix.lower() in FOREIGN_SUFFIXES:
            raise OptionError(f"{output}: {path.suffix.lower()} files cannot be written, only text")
        prepare_folder(path.parent)
        check_no_collisions([path], inputs)
        return [lambda _: path]
    prepare_folder(path)
    plain = iter(output_names([i for i, name in zip(inputs, names, strict=True) if name is None]))
    planned: list[Callable[[str], Path] | None] = []
    for each, name in zip(inputs, names, strict=True):
        suffix = Path(each).suffix or ".txt" if each != "-" else ".txt"
        own = path / (next(plain) if name is None else name)
        prepare_folder(own.parent)
        planned.append(
            partial(_translation_path, own.parent, own.name.removesuffix(suffix), suffix)
        )
    return planned


def _translation_path(folder: Path, stem: str, suffix: str, language: str) -> Path:
    return fitting(folder / f"{stem}.{language}{suffix}", f".{language}{suffix}")


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


@contextmanager
def reserved(paths: Iterable[Path]) -> Iterator[None]:
    """A context in which no other process of this user reserves the same files.

    The locks lie in the user's cache: a run that is killed leaves nothing beside its results.

    Raises:
        OutputError: Another process has reserved one, or the lock cannot be written.
    """
    with ExitStack() as stack:
        for path in sorted(paths):
            stack.enter_context(_reserved(path))
        yield


@contextmanager
def _reserved(path: Path) -> Iterator[None]:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    name = user_cache_path("edgeapp") / "locks" / f"{digest[:32]}.lock"
    with output_errors(name):
        name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(name, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        # A process that has just ended deletes the file: a lock of it is worth nothing then.
        if is_locked(file) or not is_at(file, name):
            raise OutputError(f"{path} is being written by another run: -o names another place")
        try:
            yield
        finally:
            with suppress(OSError):  # Windows deletes no open file
                name.unlink()
    finally:
        os.close(file)


def write_atomically(
    path: Path,
    content: str | bytes | Iterable[bytes],
    before_rename: Callable[[str], None] | None = None,
) -> None:
    """Write a file, text as UTF-8, under a temporary name, then rename it.

    A reader sees the old file or the new one, never a part of it; after a power cut too.

    Args:
        path: The file.
        content: All of it, or its parts.
        before_rename: Gets the SHA-256 of the content while the old file is still there.

    Raises:
        OutputError: The file cannot be written.
    """
    if isinstance(content, str):
        content = content.encode()
    parts = [content] if isinstance(content, bytes) else content
    digest = hashlib.sha256()
    with output_errors(path):
        temporary, file = _open_temporary(path)
        try:
            with file:
                for part in parts:
                    file.write(part)
                    digest.update(part)
                file.flush()
                os.fsync(file.fileno())
                if before_rename is not None:
                    before_rename(digest.hexdigest())
                if os.name == "nt":  # where no open file is renamed
                    file.close()
                temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _open_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """An empty file beside `path` that no other process writes, locked.

    The first free one of a few names: what a killed process has left is written over.
    """
    flags = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    for number in range(_TEMPORARY_NAMES):
        temporary = beside(path, f".{number}.tmp", ".")
        try:
            file, is_new = os.open(temporary, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            try:
                file, is_new = os.open(temporary, flags), False
            except OSError:  # it was renamed meanwhile, or is another user's
                continue
        # Another process may have locked or renamed it meanwhile.
        if try_lock(file) and is_at(file, temporary):
            os.ftruncate(file, 0)
            return temporary, os.fdopen(file, "wb")
        os.close(file)
        if is_new:
            temporary.unlink(missing_ok=True)
            break
    temporary = beside(path, f".{secrets.token_hex(4)}.tmp", ".")
    return temporary, temporary.open("xb")  # where there are no locks
