"""Which files a command works on: files, folders, patterns, addresses, and lists of them."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeapp.batch.remote_file import RemoteFile, RemoteFiles, is_address
from edgeapp.documents.text_encoding import decode_text, read_bytes
from pipelines import InputError

__all__ = ["MEDIA_SUFFIXES", "PICTURE_SUFFIXES", "FoundInput", "find_inputs", "read_list"]

MEDIA_SUFFIXES = frozenset(
    ".aac .ac3 .aif .aiff .alac .amr .ape .au .avi .caf .flac .flv .m4a .m4b .m4v .mka .mkv "
    ".mov .mp2 .mp3 .mp4 .mpeg .mpg .oga .ogg .ogv .opus .ra .rm .spx .ts .tta .voc .w64 .wav "
    ".webm .wma .wmv .wv".split()
)
PICTURE_SUFFIXES = frozenset(".png .jpg .jpeg .webp .tif .tiff .bmp .gif .ppm .pgm .pbm".split())

_MAX_LIST_BYTES = 64 << 20


@dataclass(frozen=True)
class FoundInput:
    """An input.

    Attributes:
        path: Its path; "-" is stdin.
        name: Under which its results are named: relative to the folder that was given, without
            the suffix; None for a file that was given by itself.
        problem: Why it stands for no file; None if it does.
        remote: What is downloaded to `path`; None for a file of this machine.
    """

    path: str
    name: str | None = None
    problem: str | None = None
    remote: RemoteFile | None = None

    @property
    def shown(self) -> str:
        """The name for messages and the journal."""
        return self.path if self.remote is None else self.remote.shown


def find_inputs(
    names: Iterable[str],
    suffixes: frozenset[str],
    remote: RemoteFiles | None = None,
    *,
    hint: str = "",
) -> list[FoundInput]:
    """The inputs that names on a command line stand for, without repetitions.

    Args:
        names: Files; "-" for stdin; folders, of which all files with a suffix of `suffixes` are
            taken, at any depth; patterns with *, ? or [ ]; http and https addresses.
        suffixes: Suffixes in lower case, with the dot.
        remote: Makes the files at addresses; None: an address is an input with a problem.
        hint: Appended to the problem of a file that does not exist.

    Returns:
        The inputs in order; a name that stands for no file is one with a problem.
    """
    found: dict[str, FoundInput] = {}
    for name in names:
        path = Path(name)
        if not name.strip():
            inside = [FoundInput(name, problem="the name of an input is empty")]
        elif is_address(name):
            inside = [_at_address(name, remote)]
        elif path.is_dir():
            inside = _in_folder(path, suffixes)
            if not inside:
                problem = f"{name}: no file in this folder has a suffix of a known format"
                inside = [FoundInput(name, problem=problem)]
        elif any(mark in name for mark in "*?[") and not path.exists():
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # absolute patterns too
            inside = [FoundInput(match) for match in matches if Path(match).is_file()]
            if not inside:
                inside = [FoundInput(name, problem=f"{name}: no file matches this pattern")]
        elif name != "-" and not os.path.exists(name):  # noqa: PTH110  # a name may be too long
            inside = [FoundInput(name, problem=f"{name}: there is no such file{hint}")]
        else:
            inside = [FoundInput(name)]
        for each in inside:
            found.setdefault(each.path, each)
    return list(found.values())


def _at_address(name: str, remote: RemoteFiles | None) -> FoundInput:
    if remote is None:
        problem = f"{name} is an address, which is opened only if asked: --allow-urls downloads it"
        return FoundInput(name, problem=problem)
    file = remote.at(name)
    return FoundInput(str(file.path), remote=file)


def read_list(path: Path) -> list[str]:
    """The names in a file, one a line; empty lines and lines that begin with # are left out.

    Relative names are relative to the folder of the list.

    Raises:
        InputError: It cannot be read.
    """
    content = read_bytes(path, _MAX_LIST_BYTES, "too large for a list of files")
    lines = decode_text(content, str(path))[0].splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise InputError(f"{path} names no file")
    return [name if name == "-" or is_address(name) else str(path.parent / name) for name in names]


def _in_folder(folder: Path, suffixes: frozenset[str]) -> list[FoundInput]:
    """The files below a folder. Hidden files and folders are left out."""
    files: Sequence[Path] = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    relative = [path.relative_to(folder) for path in files]
    stems = Counter(path.with_suffix("") for path in relative)
    return [
        FoundInput(str(path), str(stem if stems[stem] == 1 else name))
        for path, name in zip(files, relative, strict=True)
        for stem in [name.with_suffix("")]
    ]
