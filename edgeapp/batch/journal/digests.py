"""Digests of files, computed once for as long as a file stays as it is."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from edgeapp.store.database import Database
from pipelines import OutputError

__all__ = ["FileDigests"]

# A file that is changed twice within the resolution of its times looks the same after the second
# change, so that only the digest of an older file is remembered.
_SETTLED_S = 2.0
_MAX_IN_MEMORY = 10_000
_WRITTEN_AT_ONCE = 500


class FileDigests:
    """SHA-256 of the contents of files whose size, times and inode have not changed.

    Args:
        database: Where they are remembered from run to run, in the table `digests`; None: nowhere.
    """

    def __init__(self, database: Database | None = None) -> None:
        self._database = database
        self._known: dict[str, str] = {}
        self._new: list[tuple[str, str, float]] = []  # of settled files, not written yet

    def of(self, path: Path) -> str | None:
        """Return the SHA-256 of a file's content; None if it cannot be read."""
        with suppress(OSError):
            return self._digest(path, b"")
        return None

    def job_key(self, source: Path, **settings: str | int | bool | None) -> str:
        """Return the SHA-256 of all that an output depends on: source bytes and settings.

        Args:
            source: The input file.
            **settings: Under names that stay the same: others would start interrupted jobs again.

        Raises:
            OSError: The file cannot be read.
        """
        return self._digest(source, json.dumps(settings, sort_keys=True).encode())

    def close(self) -> None:
        """Write the digests that are new to the database, which is not used afterwards."""
        self._flush()
        self._database = None

    def _flush(self) -> None:
        new, self._new = self._new, []
        if self._database is not None and new:
            with suppress(OutputError):  # They are computed again.
                self._database.run(
                    lambda db: db.executemany(
                        "INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", new
                    )
                )

    def _digest(self, path: Path, prefix: bytes) -> str:
        with path.open("rb") as file:
            state, settled = _state_of(file)
            name = f"{state} {hashlib.sha256(prefix).hexdigest()}" if prefix else state
            if (known := self._known.get(name) or self._stored(name)) is not None:
                return known
            content, whole = hashlib.sha256(), hashlib.sha256(prefix)
            while chunk := file.read(1 << 20):
                content.update(chunk)
                if prefix:
                    whole.update(chunk)
        digest = whole.hexdigest() if prefix else content.hexdigest()
        self._remember(state, content.hexdigest(), settled)  # Results are noted with it.
        if prefix:
            self._remember(name, digest, settled)
        return digest

    def _stored(self, name: str) -> str | None:
        if self._database is None:
            return None
        query = "SELECT digest FROM digests WHERE file = ?"
        row = self._database.run(lambda db: db.execute(query, (name,)).fetchone(), writes=False)
        return None if row is None else str(row[0])

    def _remember(self, name: str, digest: str, settled: bool) -> None:
        if len(self._known) >= _MAX_IN_MEMORY:
            self._known.clear()
        self._known[name] = digest
        if settled:
            self._new.append((name, digest, time.time()))
            if len(self._new) >= _WRITTEN_AT_ONCE:
                self._flush()


def _state_of(file: BinaryIO) -> tuple[str, bool]:
    """Return what changes with a file, and whether its last change is long enough ago."""
    found = os.fstat(file.fileno())
    state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    settled = time.time() - max(found.st_mtime, found.st_ctime) > _SETTLED_S
    return " ".join(map(str, state)), settled
