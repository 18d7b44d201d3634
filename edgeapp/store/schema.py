"""Tables of a SQLite file: whose file it is, and how those of earlier versions are migrated."""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

__all__ = ["MAGIC", "Schema", "fetch_row"]

_APPLICATION_ID_AT = 68  # byte of the header
_HEADER_BYTES = 100
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24  # of a write-ahead log
MAGIC = b"SQLite format 3\0"  # the beginning of every database


@dataclass(frozen=True)
class Schema:
    """The tables of one kind of file.

    Attributes:
        name: What messages call the file, such as "history".
        application_id: Written to the header, which tells the file from other programs' databases.
        migrations: Statements, or a function, from each version to the next. Append only: a file
            records in `user_version` how many were run.
        advice: What to do about a file that cannot be used, as the end of a sentence.
        repair: What to do before that if the beginning of the file is damaged.
        unmarked: A query that only the files can answer that were made before files had an
            application id.
        synchronous: "FULL" keeps each transaction through a power failure; with "NORMAL" the last
            ones may be lost, but not the file.
        busy_s: Seconds to wait for other processes that write.
    """

    name: str
    application_id: int
    migrations: Sequence[Sequence[str] | Callable[[sqlite3.Connection], None]]
    advice: str
    repair: str = ""
    unmarked: str | None = None
    synchronous: str = "NORMAL"
    busy_s: float = 2.0

    @property
    def foreign(self) -> str:
        """What is said of another program's database, as the end of a sentence."""
        return f"is another program's database: {self.advice}"

    def problem(self, path: Path) -> str | None:
        """Return why a file is not of this kind, and what to do, as the end of a sentence.

        The result is None for an empty or missing file, too. The file is not changed, as SQLite
        would change another program's database if it opened it for writing.

        Raises:
            OSError: The file cannot be read.
        """
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(mode):
            return f"is a {'folder' if stat.S_ISDIR(mode) else 'device or pipe'}: {self.advice}"
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header:
            return None
        if not header.startswith(MAGIC):
            return (
                f"is no {self.name} of edgeapp, or its beginning is damaged: "
                f"{self.repair}{self.advice}"
            )
        if not _owner(header):
            log = Path(f"{path}-wal")
            if self.unmarked is not None:
                return None  # `version` tells it by its tables
            if log.is_file() and log.stat().st_size:
                header = _last_header(log)  # It was killed before its first checkpoint.
            elif self._is_empty(path):
                return None
        return None if _owner(header) == self.application_id else self.foreign

    def _is_empty(self, path: Path) -> bool:
        """Return whether a database has no tables. "immutable": no file is created beside it."""
        uri = f"file:{quote(str(path.absolute()))}?immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return self.version(connection) == 0

    def version(self, connection: sqlite3.Connection) -> int | None:
        """Return the version of a file; 0 for an empty one, None for another program's."""
        (tables,) = fetch_row(connection, "SELECT count(*) FROM sqlite_master", self.busy_s)
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if owner != self.application_id and tables:
            if owner or self.unmarked is None:
                return None
            try:
                connection.execute(self.unmarked)
            except sqlite3.OperationalError:
                return None
        return int(version)

    def migrate(self, connection: sqlite3.Connection, steps: int | None = None) -> None:
        """Bring the tables to the current version, inside the caller's transaction.

        Args:
            connection: The file.
            steps: The version to stop at, for tests.
        """
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in self.migrations[version:steps]:
            if callable(step):
                step(connection)
                continue
            for statement in step:
                connection.execute(statement)
        latest = len(self.migrations) if steps is None else steps
        connection.execute(f"PRAGMA application_id={self.application_id}")
        connection.execute(f"PRAGMA user_version={max(version, latest)}")


def _owner(header: bytes) -> int:
    """Return the application id in the header of a database."""
    return int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4])


def _last_header(log: Path) -> bytes:
    """Return the newest header of a database that is in its write-ahead log, or b""."""
    header = b""
    with log.open("rb") as file:
        page_bytes = int.from_bytes(file.read(_LOG_HEADER_BYTES)[8:12])
        while page_bytes and len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
            page = file.read(page_bytes)
            if int.from_bytes(frame[:4]) == 1:
                header = page[:_HEADER_BYTES]
    return header


def fetch_row(connection: sqlite3.Connection, statement: str, busy_s: float) -> tuple[int, ...]:
    """Return one row of a statement for which SQLite's own busy timeout does not apply.

    Raises:
        sqlite3.OperationalError: The file is still locked after `busy_s` seconds.
    """
    deadline = time.monotonic() + busy_s
    while True:
        try:
            row: tuple[int, ...] = connection.execute(statement).fetchone()
            return row
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
