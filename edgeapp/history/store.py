"""The SQLite file behind the history: opened when first used, kept private, mended or replaced.

Any number of threads share one Store, any number of processes one file.
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
    INDEX,
    MIGRATIONS,
    PATIENCE_S,
    has_trigrams,
    migrate,
    patiently,
    version_of,
)
from pipelines import OutputError

__all__ = ["Store"]

T = TypeVar("T")


class _Unfit(Exception):
    """A file that this version cannot go on with; says why."""


class Store:
    """A file of records, made when it is first used; `run` is the way to it.

    warn: is told in one line of a file that had to be moved aside.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path, self._warn = path, warn
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None  # device and inode of the file in use
        self.indexed = has_trigrams()

    def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """What `work` returns, as one transaction. It is called again when the file had to be
        mended or replaced. Raises OutputError when the file cannot be used.
        """
        with self._lock, self._errors():
            try:
                return self._transaction(work, writes)
            except sqlite3.DatabaseError as error:
                self._mend(error)
                return self._transaction(work, writes)

    def wipe(self) -> None:
        """Leave no trace of deleted text in the files."""
        # While others are at work it cannot be done; a later one does it.
        with self._lock, suppress(OutputError), self._errors():
            connection = self._connected()
            if not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").fetchone()[0]:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self.identity = None

    def _transaction(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        with connection:
            return work(connection)

    def _connected(self) -> sqlite3.Connection:
        # Somebody may have deleted the file, or another process moved it aside.
        if self._connection is not None and _identity(self.path) == self.identity:
            return self._connection
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connection = self._opened()
        except _Unfit as unfit:
            self._set_aside("newer", str(unfit))
            self._connection = self._opened()
        except sqlite3.DatabaseError as error:
            if not _damaged(error):
                raise
            self._set_aside("broken", "is damaged")
            self._connection = self._opened()
        self.identity = _identity(self.path)
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        self.identity = _identity(self.path)
        connection = sqlite3.connect(
            self.path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        try:
            # SQLite gives the files that it puts beside this one the same permissions.
            if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
                with suppress(PermissionError):  # somebody else's, who lets us write
                    self.path.chmod(0o600)
            # A flipped bit in a text is no reason to fail.
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = version_of(connection)
        if version is None:
            raise OutputError(
                f"{self.path} is another program's database: name another history file"
            )
        if version > len(MIGRATIONS):
            raise _Unfit("was written by a newer edgeapp")
        patiently(connection, "PRAGMA journal_mode=WAL")
        # In WAL mode this survives kill -9; a power cut may take the last cues, never the file.
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

    def _mend(self, error: sqlite3.DatabaseError) -> None:
        """Make a second attempt possible, or raise the error."""
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_CORRUPT_VTAB:  # the index alone, which is made from the rest
            self._connected().execute("INSERT INTO found (found) VALUES ('rebuild')")
        elif _damaged(error):
            self._set_aside("broken", "is damaged")
        else:
            raise error

    def _set_aside(self, label: str, reason: str) -> None:
        judged = self.identity
        self.close()
        if judged is None or _identity(self.path) != judged:
            return  # another process was faster
        aside = next(
            path
            for number in count(1)
            if not (path := self.path.with_name(f"{self.path.name}.{label}-{number}")).exists()
        )
        # The file itself last: whoever finds none at its place starts a new one, with a new log.
        with suppress(FileNotFoundError):
            for ending in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").rename(f"{aside}{ending}")
            self.path.rename(aside)
            self._warn(f"{self.path} {reason}: kept as {aside.name}, a new history begins")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise OutputError(f"history {self.path} cannot be used: {reason}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _damaged(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the part that says more
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
