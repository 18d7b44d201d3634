"""Deletion of models from the Hugging Face cache, and of what nothing uses any more.

huggingface_hub deletes the revisions of a model. It lists no files of its store that no repository
links to, and what it has for them is private:

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
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.hub.cache import cache_folder, size_of, storage_folder
from pipelines.hub.foreign import foreign_root, is_outdated

if TYPE_CHECKING:
    from huggingface_hub import HFCacheInfo

_MARKER = ".huggingface-shared-blobs"
_LAYOUT = "1"
_HASH = re.compile(r"[0-9a-f]{64}")
_ABANDONED_S = 24 * 3600.0  # a download that runs writes more often


@dataclass(frozen=True)
class Leftover:
    """A file or folder that nothing uses any more.

    Attributes:
        path: What `remove` deletes.
        size_bytes: The space that it takes.
        reason: Why it is not needed, as the end of a sentence.
        is_shared: Whether it lies in the store that repositories share.
    """

    path: Path
    size_bytes: int
    reason: str
    is_shared: bool = False

    def remove(self) -> None:
        """Delete it. Raises OSError."""
        if self.is_shared:
            _delete_unused(self.path)
        elif self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def delete_cached(repository: str) -> int | None:
    """Delete all revisions of a repository. A file that another repository shares stays.

    Returns:
        The freed bytes; None if the repository is not in the cache.

    Raises:
        OSError: It cannot be deleted.
    """
    storage = storage_folder(repository).resolve()
    if not storage.is_dir():
        return None
    cache = _scan()
    partial = (f for f in cache.incomplete_files if f.file_path.is_relative_to(storage))
    freed = sum(file.size_on_disk for file in partial)
    for found in cache.repos:
        if found.repo_path == storage:
            # Alone: a copy of the repository has commits of the same names.
            alone = replace(cache, repos=frozenset({found}))
            deletion = alone.delete_revisions(*(each.commit_hash for each in found.revisions))
            freed += deletion.expected_freed_size
            deletion.execute()
    if storage.exists():
        # No revision of it is whole, or huggingface_hub failed, which it only logs: this raises.
        shutil.rmtree(storage)
    shutil.rmtree(cache_folder() / ".locks" / storage.name, ignore_errors=True)
    return freed


def find_leftovers() -> list[Leftover]:
    """Return what is not used any more.

    These are folders for models of other programs that are gone or were changed, downloads that
    were interrupted a day ago or earlier, and shared files whose repositories were deleted.
    """
    found = []
    if foreign_root().is_dir():
        for folder in sorted(foreign_root().iterdir()):
            if folder.is_dir() and (reason := is_outdated(folder)):
                files = [file for file in folder.rglob("*") if file.is_file()]
                size = sum(file.lstat().st_size for file in files)
                found.append(Leftover(folder, size, reason))
    if not cache_folder().is_dir():
        return found
    oldest = time.time() - _ABANDONED_S
    parts = {
        file.file_path: file.size_on_disk
        for file in _scan().incomplete_files
        if file.file_path.parents[1].name.startswith("models--")
    }
    parts |= {folder: size_of(folder) for folder in cache_folder().glob("models--*/index.*.tmp")}
    for part, size in sorted(parts.items()):
        if part.lstat().st_mtime < oldest:
            found.append(Leftover(part, size, "its download was interrupted"))
    for blob in _unused_blobs():
        found.append(Leftover(blob, blob.stat().st_size, "no model links to it", is_shared=True))
    return found


def _scan() -> HFCacheInfo:
    from huggingface_hub import scan_cache_dir

    return scan_cache_dir(cache_folder())


def _unused_blobs() -> list[Path]:
    """Return the files of the store that no repository links to, sorted."""
    store = _store()
    if store is None:
        return []
    stored = {file for file in store.glob("??/*") if _HASH.fullmatch(file.name)}
    return sorted(stored - _used(store))


def _delete_unused(blob: Path) -> None:
    """Delete a file of the store unless a repository links to it."""
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    # huggingface_hub holds this lock while it adds a file or a link.
    with WeakFileLock(blob.with_name(f"{blob.name}.lock")):
        if blob not in _used(blob.parent.parent):
            blob.unlink(missing_ok=True)
            blob.with_name(f"{blob.name}.refs").unlink(missing_ok=True)


def _store() -> Path | None:
    """Return the folder of the store; None if there is none, or one of an unknown layout."""
    store = cache_folder().resolve() / "blobs"
    try:
        layout = (store / _MARKER).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
    return store if layout.strip() == _LAYOUT else None


def _used(store: Path) -> set[Path]:
    """Return the files of the store that a model, data set or space links to."""
    links = (file for file in cache_folder().glob("*--*/blobs/*") if file.is_symlink())
    return {target for link in links if (target := link.resolve()).parent.parent == store}
