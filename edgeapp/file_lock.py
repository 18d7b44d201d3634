"""Locks of files between processes: one that is killed holds none any more."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_at", "try_lock"]


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed.

    Args:
        file: Its descriptor.

    Returns:
        False: another process has locked it, or the file system has no locks.
    """
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at a path, and not one that was there before."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
