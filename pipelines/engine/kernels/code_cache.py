"""Compiled kernels as bytes, and the folder on disk that keeps them between processes.

The files are machine code that runs in this process, so only private ones are used: a regular file
(no symbolic link) that this user or root owns and that neither group nor others can write, in a
folder of which the same holds. Windows has no such modes: there the user's own folder is trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # less the umask
# A stored file, or an incomplete one of `write_cached`.
_NAME = r"[a-z0-9]+-[0-9a-f]{16}\.(?:kernels|checked)"
_STORED = re.compile(rf"{_NAME}|\.{_NAME}\.\d+\.[0-9a-f]{{8}}")
_OUTDATED_AGE_S, _PART_AGE_S = 30 * 24 * 3600.0, 3600.0
# O_NONBLOCK: opening a named pipe must not wait for a writer.
_READ_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True)
class ObjectCode:
    """All kernels for one instruction set.

    Attributes:
        symbols: Kernel → its symbol in the object file.
        stubs: Symbols that the object file references and never calls.
        code: The object file.
    """

    symbols: dict[str, str]
    stubs: list[str]
    code: bytes

    @property
    def body(self) -> bytes:
        """One line of JSON, and the code."""
        header = json.dumps({"symbols": self.symbols, "stubs": self.stubs})
        return header.encode() + b"\n" + self.code

    @property
    def checksum(self) -> str:
        """SHA-256 of the body, in hexadecimal."""
        return hashlib.sha256(self.body).hexdigest()


def pack(kernels: ObjectCode) -> bytes:
    """The content of a file: the checksum of all that follows it, one line of JSON, the code."""
    return kernels.checksum.encode() + b"\n" + kernels.body


def unpack(content: bytes) -> ObjectCode | None:
    """The inverse of `pack`; None if the checksum does not match."""
    checksum, _, body = content.partition(b"\n")
    if checksum != hashlib.sha256(body).hexdigest().encode():
        return None
    header, _, code = body.partition(b"\n")
    fields = json.loads(header)
    return ObjectCode(fields["symbols"], fields["stubs"], code)


def read_cached(path: Path) -> ObjectCode | None:
    """The kernels in a file of the cache; None if it is missing, damaged or not private."""
    content = read_private(path)
    return None if content is None else unpack(content)


def read_private(path: Path) -> bytes | None:
    """The content of a file; None if it is missing, or if others could have written it."""
    try:
        if not _is_private(path.parent.stat()):
            return None
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _READ_FLAGS)) as f:
            status = os.fstat(f.fileno())
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return None
            return f.read()
    except OSError:
        return None


def write_cached(path: Path, content: bytes) -> bool:
    """Store a file whole or not at all.

    Returns:
        Whether it is stored; False if the folder is not private or cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
        if not _is_private(path.parent.stat()):
            return False
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, _FILE_MODE)) as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        part.replace(path)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return True


def remove_outdated(path: Path) -> None:
    """Remove files of other versions beside a file that was just stored.

    Args:
        path: "<level>-<key>.kernels". Files of other keys are removed if no process has read or
            written them for a month, and incomplete ones after an hour.
    """
    now = time.time()
    with suppress(OSError):
        if not _is_private(path.parent.stat()):
            return
    for other in path.parent.iterdir():
        ours = other.stem == path.stem  # or the note that it was checked
        match = None if ours else _STORED.fullmatch(other.name)
        age_s = _PART_AGE_S if other.name.startswith(".") else _OUTDATED_AGE_S
        with suppress(OSError):
            status = other.lstat()
            used = max(status.st_atime, status.st_mtime)
            if match and stat.S_ISREG(status.st_mode) and now - used > age_s:
                other.unlink()


def can_write(folder: Path) -> bool:
    """Whether `write_cached` can store files in a folder, which need not exist yet."""
    for place in (folder, *folder.parents):
        try:
            status = place.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        usable = stat.S_ISDIR(status.st_mode) and (place != folder or _is_private(status))
        return usable and os.access(place, os.W_OK | os.X_OK)
    return False


def folder_problem(folder: Path) -> str | None:
    """Why an existing folder is not private, as the end of a sentence; None if it is or is new."""
    try:
        status = folder.stat()
    except OSError:
        return None
    if _is_private(status):
        return None
    return "other users can write to it" if _is_own(status) else "it belongs to another user"


def _is_private(status: os.stat_result) -> bool:
    """Whether no other user but root can change a file or a folder."""
    return _is_own(status) and (os.name != "posix" or not status.st_mode & 0o022)


def _is_own(status: os.stat_result) -> bool:
    return os.name != "posix" or status.st_uid in (0, os.geteuid())
