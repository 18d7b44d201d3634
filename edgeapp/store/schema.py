"""Tables of the history, and migrations of files of older versions."""

from __future__ import annotations

import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = [
    "BUSY_TIMEOUT_S",
    "FOREIGN_DATABASE",
    "INDEX",
    "MAGIC",
    "MIGRATIONS",
    "fetch_row",
    "foreign_file_problem",
    "has_trigrams",
    "migrate",
    "schema_version",
]

_APPLICATION_ID = 0x45444745  # "EDGE", in the header of our files
_APPLICATION_ID_AT = 68  # byte of the header
_HEADER_BYTES = 100
FOREIGN_DATABASE = "is another program's database: choose another history file"
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24  # of a write-ahead log
MAGIC = b"SQLite format 3\0"  # the beginning of every database
BUSY_TIMEOUT_S = 2.0  # wait for other processes that write

# Statements from each schema version to the next. Append only: files record how many were run.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # owner: the person who can read it, "" without logins. created: microseconds since 1970,
        # UTC. plain: the title, folded for searching.
        """CREATE TABLE records (
            id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL,
            title TEXT NOT NULL, plain TEXT NOT NULL, created INTEGER NOT NULL,
            duration_s REAL NOT NULL, language TEXT, target TEXT, model TEXT)""",
        # One cue of the text or of its translation. plain: the text, folded for searching.
        # indexed: whether it is in the index `found`. A Python without FTS5 leaves it 0, and the
        # next one with FTS5 adds it.
        """CREATE TABLE entries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            record INTEGER NOT NULL REFERENCES records ON DELETE CASCADE,
            translated INTEGER NOT NULL, start REAL, end REAL, text TEXT NOT NULL,
            plain TEXT NOT NULL, indexed INTEGER NOT NULL)""",
        "CREATE INDEX entries_of_record ON entries (record)",
        "CREATE INDEX entries_not_indexed ON entries (id) WHERE NOT indexed",
    ),
    (
        # sound: name of the recording in the folder beside the file. deleted: when the record was
        # put into the trash, as `created`. words: of a cue, as JSON (word_times.py).
        "ALTER TABLE records ADD COLUMN sound TEXT",
        "ALTER TABLE records ADD COLUMN deleted INTEGER",
        "ALTER TABLE entries ADD COLUMN words TEXT",
    ),
    # speaker: of a cue; NULL if it is not known.
    ("ALTER TABLE entries ADD COLUMN speaker TEXT",),
)

# A trigram index finds parts of words, and words in languages written without spaces.
INDEX = """CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5 (
    plain, content='entries', content_rowid='id', tokenize='trigram')"""


def has_trigrams() -> bool:
    """Whether this Python's SQLite has FTS5 with trigrams, as most have since SQLite 3.34."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(INDEX.format(name="probe"))
        except sqlite3.OperationalError:
            return False
        return True


def foreign_file_problem(path: Path) -> str | None:
    """Why a file is not a history, and what to do, as the end of a sentence.

    Of a history, and of an empty or missing file, it is None. The file is not changed, as SQLite
    would change another program's database if it opened it for writing.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "device or pipe"
        return f"is a {kind}: choose another history file"
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return None
    if not header.startswith(MAGIC):
        return (
            "is no history of edgeapp, or its beginning is damaged: `edgeapp history repair` finds "
            "out, or choose another history file"
        )
    if not _owner(header):
        log = Path(f"{path}-wal")
        if log.is_file() and log.stat().st_size:
            header = _last_header(log)  # of an earlier version, killed before its first checkpoint
        elif _is_empty(path):
            return None
    return None if _owner(header) == _APPLICATION_ID else FOREIGN_DATABASE


def _owner(header: bytes) -> int:
    """The application id in the header of a database."""
    return int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4])


def _last_header(log: Path) -> bytes:
    """The newest header of a database that is in its write-ahead log; b"" if there is none."""
    header = b""
    with log.open("rb") as file:
        page_bytes = int.from_bytes(file.read(_LOG_HEADER_BYTES)[8:12])
        while page_bytes and len(frame := file.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
            page = file.read(page_bytes)
            if int.from_bytes(frame[:4]) == 1:
                header = page[:_HEADER_BYTES]
    return header


def _is_empty(path: Path) -> bool:
    """Whether a database has no tables. "immutable": no file is created beside it."""
    uri = f"file:{quote(str(path.absolute()))}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return schema_version(connection) == 0


def schema_version(connection: sqlite3.Connection) -> int | None:
    """The schema version of a file; 0: it is empty; None: another program's database."""
    (tables,) = fetch_row(connection, "SELECT count(*) FROM sqlite_master")
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version if owner == _APPLICATION_ID or not tables else None


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the current version, inside the caller's transaction."""
    # Read again: another process may have migrated the file meanwhile.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={max(version, len(MIGRATIONS))}")


def fetch_row(connection: sqlite3.Connection, statement: str) -> tuple[int, ...]:
    """One row of a statement for which SQLite's own busy timeout does not apply.

    Raises:
        sqlite3.OperationalError: the file is still locked after BUSY_TIMEOUT_S.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            row: tuple[int, ...] = connection.execute(statement).fetchone()
            return row
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
