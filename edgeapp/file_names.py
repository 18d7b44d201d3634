"""Names of files: none is longer than file systems allow."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["beside", "fitting"]

_MAX_BYTES = 255  # of a name, on nearly all file systems
_HASH_DIGITS = 8


def fitting(path: Path, kept: str = "") -> Path:
    """Return a path whose name is not too long: a part of the name is replaced by a hash of it.

    Args:
        path: The path.
        kept: The end of its name that stays, such as ".de.srt".
    """
    name = path.name
    if len(os.fsencode(name)) <= _MAX_BYTES:
        return path
    end = f"~{hashlib.sha256(os.fsencode(name)).hexdigest()[:_HASH_DIGITS]}{kept}"
    stem = name.removesuffix(kept)
    while stem and len(os.fsencode(stem + end)) > _MAX_BYTES:
        stem = stem[:-1]
    return path.with_name(stem + end)


def beside(path: Path, ending: str, start: str = "") -> Path:
    """Return the path of a file beside another, whose name shows that it belongs to it.

    Args:
        path: The other file.
        ending: What is appended to its name.
        start: What its name begins with; "." hides it.
    """
    return fitting(path.with_name(f"{start}{path.name}{ending}"), ending)
