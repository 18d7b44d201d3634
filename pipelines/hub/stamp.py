"""A stamp of the models on this machine, which changes when one of their files does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipelines.errors import ModelNotFound
from pipelines.hub.assets import assets_folder
from pipelines.hub.cache import cached_repositories, storage_folder
from pipelines.hub.other_programs import other_folders

Stamp = tuple[tuple[str, int, int, int], ...]
"""(path, times of the last changes of its content and of itself in ns, size) of each file."""

_DEPTH = 4  # of the folders below one that is listed; links may lead in circles


def models_stamp() -> Stamp:
    """Return a stamp of the files of all models that `list_models` lists.

    Only their names, times and sizes are read, so that it takes a millisecond or two where a list
    of the models takes a second.
    """
    return tuple(entry for folder in _folders() for entry in _entries(str(folder), _DEPTH))


def _folders() -> Iterator[Path]:
    with suppress(ModelNotFound):
        yield assets_folder() / "models"
    for repository in cached_repositories():
        for part in ("refs", "snapshots"):
            yield storage_folder(repository) / part
    yield from other_folders()


def _entries(folder: str, depth: int) -> Iterator[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # there is no such folder, or it cannot be read
        return
    for entry in entries:
        try:
            status = entry.stat()
            is_folder = entry.is_dir()
        except OSError:  # a link to a file that is missing
            yield entry.path, 0, 0, 0
            continue
        yield entry.path, status.st_mtime_ns, status.st_ctime_ns, status.st_size
        if is_folder and depth:
            yield from _entries(entry.path, depth - 1)
