"""A SQLite file: opened on first use, private, migrated, and set aside if it is damaged.

Threads share one Database; processes may share one file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from edgeapp.store.schema import Schema, fetch_row
from pipelines import OutputError

__all__ = ["Database", "identity_of", "transact"]

T = TypeVar("T")
_MIGRATION_MS = 60_000  # waited for another process that copies and migrates a file


class Database:
    """A file of a schema, accessed in transactions through `run`.

    Only a file of the schema is ever changed or moved: any other file at the path is left as it
    is, and so is a file of a newer version. A damaged file is set aside, and a new one is begun.
    Before a file of an earlier version is migrated, it is copied if there is room; the copy is kept
    until `settle`.

    Args:
        path: Path of the file, which is created on first use.
        schema: Its tables.
        warn: Called with one line if the file was set aside.

    Attributes:
        path: Path of the file.
        identity: Device and inode of the open file; None while it is closed.
    """

    def __init__(self, path: Path, schema: Schema, warn: Callable[[str], None]) -> None:
        self.path, self.schema, self._warn = path, schema, warn
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []  # of the open file, and not in use
        self._copies: list[Path] = []  # of the file as earlier versions have left it
        self.identity: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Run `work` in one transaction.

        Args:
            work: Called again if the file had to be repaired or replaced.
            writes: Whether it changes the file. Work that does not runs beside work that does.

        Raises:
            OutputError: The file cannot be used.
        """
        with self._errors():
            if not writes and self._is_open():
                # What fails is tried again below, where the file is repaired.
                with suppress(sqlite3.DatabaseError):
                    return self._read(work)
            with self._lock:
                try:
                    return self._transaction(work, writes)
                except sqlite3.DatabaseError as error:
                    self._repair(error)
                    return self._transaction(work, writes)

    def check(self) -> bool:
        """Read every page, and repair what is damaged; return whether the file was sound.

        Raises:
            OutputError: The file cannot be used.
        """
        with self._lock, self._errors():
            try:
                return self._transaction(self._is_sound, writes=True)
            except sqlite3.DatabaseError as error:
                self._repair(error)
                return False

    def wipe(self, *, shrink: bool) -> None:
        """Remove deleted content from the write-ahead log and from copies; to `shrink` the file
        gives its space back."""
        self.settle()
        # Not possible while other connections are open; the next deletion does it then.
        with suppress(OutputError), self._errors(), self._lock:
            connection = self._connect()
            if shrink:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def settle(self) -> None:
        """Delete the copies of earlier versions: the migrated file has proven to work."""
        while self._copies:
            with suppress(OSError):  # Another process has deleted it.
                self._copies.pop().unlink()

    def set_aside(self) -> list[Path]:
        """Return the files that were set aside, by this version or an earlier one."""
        return self._beside("broken") + self._beside("newer")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._disconnect()

    def _beside(self, label: str) -> list[Path]:
        return list(self.path.parent.glob(f"{escape(self.path.name)}.{label}-*"))

    def _opened(self, connection: sqlite3.Connection) -> None:
        """Prepare a file that was opened; its tables are those of this version."""

    def _restore(self, connection: sqlite3.Connection, aside: Path) -> str:
        """Copy what can be read of a damaged file to the new one; return what was copied."""
        return f"a new {self.schema.name} was begun"

    def _repair(self, error: sqlite3.DatabaseError) -> None:
        """Repair or replace the file so that a second attempt can succeed, or raise the error."""
        if not _is_damaged(error):
            raise error
        self._salvage()

    def _is_sound(self, connection: sqlite3.Connection) -> bool:
        """Return True; raise DatabaseError for damage that `_repair` repairs."""
        (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            error = sqlite3.DatabaseError(answer)
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return True

    def _is_open(self) -> bool:
        """Return whether the file at the path is the one that was opened and prepared."""
        return self._connection is not None and identity_of(self.path) == self.identity

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection of its own, for which no writer waits."""
        readers = self._readers
        try:
            connection = readers.pop()
        except IndexError:
            # "rw": a file that was moved away meanwhile is not created again.
            path = quote(os.fsencode(self.path.absolute()))
            connection = self._opened_at(f"file:{path}?mode=rw")
            connection.execute("PRAGMA query_only=ON")
        try:
            return transact(connection, work, "BEGIN")
        finally:
            readers.append(connection)
            if readers is not self._readers:  # The file was closed meanwhile.
                _close_all(readers)

    def _disconnect(self) -> None:
        with self._lock:
            self.identity = None
            readers, self._readers = self._readers, []
            _close_all(readers)
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        # sqlite3 closes a forgotten connection, too, but warns from Python 3.13 on.
        self._disconnect()

    def _transaction(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        return transact(self._connect(), work, "BEGIN IMMEDIATE" if writes else "BEGIN")

    def _connect(self) -> sqlite3.Connection:
        # The file may have been deleted, or moved aside by another process.
        if self._connection is not None and self._is_open():
            return self._connection
        self._disconnect()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            self._salvage()
            self._connection = self._connection or self._open()
        self.identity = identity_of(self.path)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if (problem := self.schema.problem(self.path)) is not None:
            raise OutputError(f"{self.path} {problem}")
        self.identity = identity_of(self.path)
        connection = self._opened_at(os.fspath(self.path))
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened_at(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            name,
            uri=name.startswith("file:"),
            timeout=self.schema.busy_s,
            isolation_level=None,
            check_same_thread=False,
        )
        # Invalid UTF-8 from a damaged file is replaced instead of raising.
        connection.text_factory = _decoded
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version, latest = self.schema.version(connection), len(self.schema.migrations)
        if version is None:
            raise OutputError(f"{self.path} {self.schema.foreign}")
        if version > latest:
            raise OutputError(
                f"{self.path} was written by a newer edgeapp: update edgeapp, or "
                f"{self.schema.advice}"
            )
        for ending in ("", "-wal", "-shm"):  # SQLite creates the last two with the first's mode.
            with suppress(FileNotFoundError, PermissionError):  # or another user's, writable for us
                if (path := Path(f"{self.path}{ending}")).stat().st_mode & 0o077:
                    path.chmod(0o600)
        connection.execute("PRAGMA secure_delete=ON")
        if version < latest:
            # Another process may be copying and migrating the file, which takes a while.
            connection.execute(f"PRAGMA busy_timeout={_MIGRATION_MS}")
            # Before the write-ahead log is used: the header then tells whose file it is.
            transact(connection, self._migrate)
            connection.execute(f"PRAGMA busy_timeout={int(self.schema.busy_s * 1000)}")
        fetch_row(connection, "PRAGMA journal_mode=WAL", self.schema.busy_s)
        connection.execute(f"PRAGMA synchronous={self.schema.synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")  # A migration may rebuild tables without them.
        self._opened(connection)
        self._copies = self._beside("version")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Copy a file of an earlier version, if there is room, and migrate it."""
        version = self.schema.version(connection)  # Another process may have migrated it by now.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and version != len(self.schema.migrations):
            copy = self.path.with_name(f"{self.path.name}.version-{version}")
            copy.unlink(missing_ok=True)
            try:
                os.close(os.open(copy, os.O_CREAT | os.O_EXCL, 0o600))
                # A connection cannot be copied from while it writes, but this transaction keeps
                # the file as it is.
                with (
                    closing(self._opened_at(os.fspath(self.path))) as source,
                    closing(sqlite3.connect(copy)) as target,
                ):
                    source.backup(target)
            except BaseException as error:
                copy.unlink(missing_ok=True)
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
                    raise
        self.schema.migrate(connection)

    def _salvage(self) -> None:
        """Move a damaged file aside and copy its readable rows to a new one."""
        aside = self._set_aside()
        if aside is None:
            return
        self._connection = self._open()
        self.identity = identity_of(self.path)
        kept = transact(self._connection, lambda db: self._restore(db, aside))
        self._warn(f"{self.path} was damaged: {kept}; the damaged file is kept as {aside.name}")

    def _set_aside(self) -> Path | None:
        """Rename the file to "<name>.broken-<number>"; the next use creates a new one.

        Returns:
            Its new path; None if another process has moved it already.
        """
        identity = self.identity
        self._disconnect()
        if identity is None or identity_of(self.path) != identity:
            return None
        aside = next(
            path
            for number in count(1)
            if not (path := self.path.with_name(f"{self.path.name}.broken-{number}")).exists()
        )
        # The database is renamed last: once it is missing, other processes create a new one.
        with suppress(FileNotFoundError):
            for ending in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
            self.path.rename(aside)
            return aside
        return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(
                f"the {self.schema.name} {self.path} cannot be used: {reason}; {self.schema.advice}"
            ) from error


def _close_all(connections: list[sqlite3.Connection]) -> None:
    with suppress(IndexError):
        while True:
            connections.pop().close()


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def transact(
    connection: sqlite3.Connection,
    work: Callable[[sqlite3.Connection], T],
    begin: str = "BEGIN IMMEDIATE",
) -> T:
    """Run `work` in a transaction, which Ctrl-C ends too, also while it waits for its beginning."""
    try:
        connection.execute(begin)
        with connection:
            return work(connection)
    except BaseException:
        connection.rollback()
        raise


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _is_damaged(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary error code
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
