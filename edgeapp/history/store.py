"""The SQLite file of the history: opened on first use, private, repaired or replaced if damaged.

Threads share one Store; processes may share one file.
"""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from edgeapp.history.schema import (
    BUSY_TIMEOUT_S,
    INDEX,
    MIGRATIONS,
    fetch_row,
    has_trigrams,
    migrate,
    schema_version,
)
from pipelines import OutputError

__all__ = ["Store"]

T = TypeVar("T")


class _NewerFile(Exception):
    """The file was written by a newer version."""


class Store:
    """A file of records, accessed in transactions through `run`.

    Attributes:
        path: of the file, which is created on first use.
        identity: device and inode of the open file; None while it is closed.
        indexed: whether this Python's SQLite can use the search index.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        """
        Args:
            path: of the file.
            warn: called with one line if the file had to be moved aside.
        """
        self.path, self._warn = path, warn
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None
        self.indexed = has_trigrams()

    def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Run `work` in one transaction.

        Args:
            work: called again if the file had to be repaired or replaced.
            writes: whether it changes the file.

        Returns:
            The result of `work`.

        Raises:
            OutputError: the file cannot be used.
        """
        with self._lock, self._errors():
            try:
                return self._transaction(work, writes)
            except sqlite3.DatabaseError as error:
                self._repair(error)
                return self._transaction(work, writes)

    def wipe(self) -> None:
        """Remove deleted text from the file and its write-ahead log."""
        # Not possible while other connections are open; the next deletion does it then.
        with self._lock, suppress(OutputError), self._errors():
            connection = self._connect()
            if not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").fetchone()[0]:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self.identity = None

    def _transaction(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        with connection:
            return work(connection)

    def _connect(self) -> sqlite3.Connection:
        # The file may have been deleted, or moved aside by another process.
        if self._connection is not None and _identity(self.path) == self.identity:
            return self._connection
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connection = self._open()
        except _NewerFile as error:
            self._set_aside("newer", str(error))
            self._connection = self._open()
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            self._set_aside("broken", "is damaged")
            self._connection = self._open()
        self.identity = _identity(self.path)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self.identity = _identity(self.path)
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            # SQLite gives its -wal and -shm files the same permissions.
            if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
                with suppress(PermissionError):  # another user's file, writable for us
                    self.path.chmod(0o600)
            # Invalid UTF-8 from a damaged file is replaced instead of raising.
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = schema_version(connection)
        if version is None:
            raise OutputError(
                f"{self.path} is another program's database: choose another history file"
            )
        if version > len(MIGRATIONS):
            raise _NewerFile("was written by a newer edgeapp")
        fetch_row(connection, "PRAGMA journal_mode=WAL")
        # In WAL mode this survives kill -9; a power failure may lose the last cues, not the file.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA secure_delete=ON")
        if version < len(MIGRATIONS):
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                migrate(connection)
        if self.indexed:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                connection.execute(INDEX.format(name="found"))
                connection.execute(
                    "INSERT INTO found (rowid, plain) SELECT id, plain FROM entries "
                    "WHERE NOT indexed"
                )
                connection.execute("UPDATE entries SET indexed = 1 WHERE NOT indexed")

    def _repair(self, error: sqlite3.DatabaseError) -> None:
        """Repair or replace the file so that a second attempt can succeed, or raise the error."""
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_CORRUPT_VTAB:  # only the index is damaged
            self._connect().execute("INSERT INTO found (found) VALUES ('rebuild')")
        elif _is_damaged(error):
            self._set_aside("broken", "is damaged")
        else:
            raise error

    def _set_aside(self, label: str, reason: str) -> None:
        """Rename the file to "<name>.<label>-<number>"; the next use creates a new one."""
        identity = self.identity
        self.close()
        if identity is None or _identity(self.path) != identity:
            return  # another process has moved it already
        aside = next(
            path
            for number in count(1)
            if not (path := self.path.with_name(f"{self.path.name}.{label}-{number}")).exists()
        )
        # The database is renamed last: once it is missing, other processes create a new one.
        with suppress(FileNotFoundError):
            for ending in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
            self.path.rename(aside)
            self._warn(f"{self.path} {reason}: kept as {aside.name}, a new history was started")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(f"history {self.path} cannot be used: {reason}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_damaged(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary error code
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
