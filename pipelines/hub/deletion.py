"""Deletion of repositories in the cache, and of files that huggingface_hub shares between them.

huggingface_hub keeps one copy of a large file for all repositories of a cache:

    blobs/.huggingface-shared-blobs                 the version of the layout
    blobs/{ha}/{hash}                               the content of a file
    blobs/{ha}/{hash}.refs                          the links to it, as huggingface_hub notes them
    blobs/{ha}/{hash}.lock                          held while a link is added, or the file deleted
    models--{organisation}--{model}/blobs/{digest}  a link to ../../blobs/{ha}/{hash}

{ha} stands for the first two digits of the hash, which is the one of Hugging Face's storage, not
the SHA-256 of the content.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pipelines.hub.cache import cache_folder, storage_folder

_MARKER = ".huggingface-shared-blobs"
_LAYOUT = "1"
_HASH = re.compile(r"[0-9a-f]{64}")


def delete_cached(repository: str) -> int | None:
    """Delete all revisions of a repository.

    A file that another repository shares stays.

    Returns:
        The freed bytes; None if the repository is not in the cache.
    """
    storage = storage_folder(repository)
    if not storage.is_dir():
        return None
    shared = _linked(storage / "blobs")
    # Snapshots are links into blobs; without links (Windows) they are the files themselves.
    files = [f.lstat() for f in storage.rglob("*") if f.is_file() and not f.is_symlink()]
    # A file counts once if it has two names.
    freed = sum({(each.st_dev, each.st_ino): each.st_size for each in files}.values())
    shutil.rmtree(storage.resolve())
    if storage.is_symlink():  # to a folder on another disk
        storage.unlink()
    shutil.rmtree(cache_folder() / ".locks" / storage.name, ignore_errors=True)
    return freed + sum(map(delete_unused, shared))


def unused_blobs() -> list[Path]:
    """Return the files of the store that no repository links to, sorted."""
    store = _store()
    if store is None:
        return []
    stored = {file for file in store.glob("??/*") if _HASH.fullmatch(file.name)}
    return sorted(stored - _used())


def delete_unused(blob: Path) -> int:
    """Delete a file of the store unless a repository links to it.

    Returns:
        The freed bytes; 0 if the file is in use or gone.
    """
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    # huggingface_hub holds this lock while it adds a file or a link.
    with WeakFileLock(blob.with_name(f"{blob.name}.lock")):
        if blob in _used() or not blob.is_file():
            return 0
        size = blob.stat().st_size
        blob.unlink()
        blob.with_name(f"{blob.name}.refs").unlink(missing_ok=True)
        return size


def _store() -> Path | None:
    """Return the folder of the store; None if there is none, or one of an unknown layout."""
    store = cache_folder().resolve() / "blobs"
    try:
        layout = (store / _MARKER).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
    return store if layout.strip() == _LAYOUT else None


def _linked(blobs: Path) -> set[Path]:
    """Return the files of the store that the links in a repository's `blobs` folder lead to."""
    store = _store()
    if store is None:
        return set()
    targets = {link.resolve() for link in blobs.glob("*") if link.is_symlink()}
    return {target for target in targets if target.parent.parent == store}


def _used() -> set[Path]:
    """Return the files of the store that a model, data set or space links to."""
    return set().union(*map(_linked, cache_folder().glob("*--*/blobs")))
