"""Locks of files between processes: one that is killed holds none any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["is_at", "is_locked", "try_lock"]


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed.

    Args:
        file: Its descriptor.

    Returns:
        False: another process has locked it, or the file system has no locks.
    """
    return _lock(file) is None


def is_locked(file: int) -> bool:
    """Lock an open file until it is closed, as `try_lock` does.

    Returns:
        True only if another process has locked it. A file system without locks has none.
    """
    error = _lock(file)
    return error is not None and error.errno in _HELD


# What a lock of another process is reported as: by Linux, by others, and by Windows.
_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


def _lock(file: int) -> OSError | None:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error
    return None


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at a path, and not one that was there before."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
