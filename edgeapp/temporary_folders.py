"""Temporary folders that the next run removes if this one is killed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from edgeapp.file_lock import try_lock

__all__ = ["make_temporary_folder", "remove_abandoned_folders"]

_PREFIX, _LOCK = "edgeapp-run-", ".lock"
_GRACE_S = 3600.0  # a folder without a lock is of a run that was killed before it made one
_locks: dict[Path, int] = {}  # folder → open file that holds its lock until this process ends


def make_temporary_folder(purpose: str) -> Path:
    """A new folder that only this user can read, removed when this process exits.

    Folders of runs that were killed are removed now.

    The lock of a folder is held by this process, so that it is free however the process ends.

    Args:
        purpose: One word, part of the name.
    """
    remove_abandoned_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))  # mode 0700
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try_lock(lock)
    _locks[folder] = lock
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_abandoned_folders() -> None:
    """Remove this user's temporary folders whose process has ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another run removes it, or it is another user's
            if folder not in _locks and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    status = folder.lstat()
    own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if folder.is_symlink() or not folder.is_dir() or not own:
        return False
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return time.time() - status.st_mtime > _GRACE_S
    try:
        return try_lock(lock)
    finally:
        os.close(lock)
