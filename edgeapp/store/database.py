"""The SQLite file of the history: opened on first use, private, repaired or replaced if damaged.

Threads share one Store; processes may share one file.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from edgeapp.history.recovery import read_rows, restore_rows
from edgeapp.store.schema import (
    BUSY_TIMEOUT_S,
    FOREIGN_DATABASE,
    INDEX,
    MAGIC,
    MIGRATIONS,
    fetch_row,
    foreign_file_problem,
    has_trigrams,
    migrate,
    schema_version,
)
from pipelines import OutputError

__all__ = ["Store"]

T = TypeVar("T")
_MERGED_PAGES = 64  # of the index, written in one transaction
_PAUSE_S = 0.001


class _NewerFile(Exception):
    """The file was written by a newer version."""


class Store:
    """A file of records, accessed in transactions through `run`.

    Only a history is ever changed or moved: any other file at the path is left as it is. Of a
    damaged history the readable rows are copied to a new file, and the old one is kept.

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
        self._beginning = threading.Lock()  # held while work in the background begins
        self._worker: threading.Thread | None = None
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
        with self._errors():
            if not writes and self._is_open():
                # Beside writers. What fails is tried again below, where the file is repaired.
                with suppress(sqlite3.DatabaseError):
                    return self._read(work)
            with self._lock:
                try:
                    return self._transaction(work, writes)
                except sqlite3.DatabaseError as error:
                    self._repair(error)
                    return self._transaction(work, writes)

    def check(self) -> bool:
        """Read every page, and repair what is damaged.

        Returns:
            Whether the file was sound.

        Raises:
            OutputError: the file cannot be used.
        """
        with self._lock, self._errors():
            if self._damaged_beginning():
                self.identity = _identity(self.path)
                self._salvage()
                return False
            try:
                return self._transaction(self._is_sound, writes=True)
            except sqlite3.DatabaseError as error:
                self._repair(error)
                return False

    def wipe(self) -> None:
        """Remove deleted text from the file and its write-ahead log, in steps: others write between
        them."""
        # Not possible while other connections are open; the next deletion does it then.
        with suppress(OutputError), self._errors():
            if self.indexed:
                self._merge_index()
            with self._lock:
                connection = self._connect()
                if not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").fetchone()[0]:
                    connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def in_background(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread, unless earlier work still runs there. Its OutputErrors are
        dropped."""

        def run() -> None:
            with suppress(OutputError):
                work()

        with self._beginning:
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(target=run, name="edgeapp-trash", daemon=True)
                self._worker.start()

    def close(self) -> None:
        """Close the file, when the work in the background has ended; the next use opens it."""
        with self._beginning:
            worker = self._worker
        if worker is not None:
            worker.join()
        self._disconnect()

    def _merge_index(self) -> None:
        """Merge the segments of the index, which keep deleted text until then."""
        pages = -_MERGED_PAGES  # less than zero: begin to merge all of them

        def step(db: sqlite3.Connection) -> bool:
            before = db.total_changes
            db.execute("INSERT INTO found (found, rank) VALUES ('merge', ?)", (pages,))
            return db.total_changes - before >= 2  # else there was no more to do

        while self.run(step):
            pages = _MERGED_PAGES
            time.sleep(_PAUSE_S)  # in which a thread that waits takes the lock

    def _is_open(self) -> bool:
        """Whether the file at the path is the one that was opened and prepared."""
        return self._connection is not None and _identity(self.path) == self.identity

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection of its own, for which no writer waits."""
        # "rw": a file that was moved away meanwhile is not created again.
        uri = f"file:{quote(os.fsencode(self.path.absolute()))}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        with closing(connection):
            connection.text_factory = _decoded
            connection.execute("PRAGMA query_only=ON")
            connection.execute("BEGIN")
            return work(connection)

    def _disconnect(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self.identity = None

    def __del__(self) -> None:
        # sqlite3 closes a forgotten connection, too, but warns from Python 3.13 on. No work runs in
        # the background any more: it would know this store. Its thread may be the one that is here.
        self._disconnect()

    def _transaction(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        with connection:
            return work(connection)

    def _connect(self) -> sqlite3.Connection:
        # The file may have been deleted, or moved aside by another process.
        if self._connection is not None and self._is_open():
            return self._connection
        self._disconnect()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connection = self._open()
        except _NewerFile:
            aside = self._set_aside("newer")
            self._connection = self._open()
            if aside is not None:
                self._warn(
                    f"{self.path} was written by a newer edgeapp: kept as {aside.name}, a new "
                    "history was started"
                )
        except sqlite3.DatabaseError as error:
            if not _is_damaged(error):
                raise
            self._salvage()
            self._connection = self._connection or self._open()
        self.identity = _identity(self.path)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if (problem := foreign_file_problem(self.path)) is not None:
            raise OutputError(f"{self.path} {problem}")
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
            connection.text_factory = _decoded
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = schema_version(connection)
        if version is None:
            raise OutputError(f"{self.path} {FOREIGN_DATABASE}")
        if version > len(MIGRATIONS):
            raise _NewerFile
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA secure_delete=ON")
        if version < len(MIGRATIONS):
            # Before the write-ahead log is used: the header then tells whose file it is.
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                migrate(connection)
        fetch_row(connection, "PRAGMA journal_mode=WAL")
        # In WAL mode this survives kill -9; a power failure may lose the last cues, not the file.
        connection.execute("PRAGMA synchronous=NORMAL")
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
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_VTAB:
            try:  # only the index is damaged
                self._connect().execute("INSERT INTO found (found) VALUES ('rebuild')")
                return
            except sqlite3.DatabaseError as other:  # or what it is built from
                error = other
        if not _is_damaged(error):
            raise error
        self._salvage()

    def _is_sound(self, connection: sqlite3.Connection) -> bool:
        """Raises DatabaseError for damage that `_repair` repairs."""
        (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            error = sqlite3.DatabaseError(answer)
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        if self.indexed:
            connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
        return True

    def _damaged_beginning(self) -> bool:
        """Whether the file is no database, but has rows of a history in its pages."""
        if foreign_file_problem(self.path) is None or not self.path.is_file():
            return False
        with self.path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return False  # another program's database
        return bool(read_rows(self.path).records)

    def _salvage(self) -> None:
        """Move a damaged file aside and copy its readable rows to a new one."""
        aside = self._set_aside("broken")
        if aside is None:
            return
        rows = read_rows(aside)
        self._connection = self._open()
        self.identity = _identity(self.path)
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            records, entries = restore_rows(self._connection, rows)
        self._connection.close()  # the next one adds the rows to the index
        self._connection = self._open()
        self.identity = _identity(self.path)
        self._warn(
            f"{self.path} was damaged: {records} records with {entries} lines could be read and "
            f"are in a new history; the damaged file is kept as {aside.name}"
        )

    def _set_aside(self, label: str) -> Path | None:
        """Rename the file to "<name>.<label>-<number>"; the next use creates a new one.

        Returns:
            Its new path; None if another process has moved it already.
        """
        identity = self.identity
        self._disconnect()
        if identity is None or _identity(self.path) != identity:
            return None
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
            return aside
        return None

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


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _is_damaged(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary error code
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
