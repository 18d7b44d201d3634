"""Tables of the history, and migrations of files of older versions."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

__all__ = [
    "BUSY_TIMEOUT_S",
    "INDEX",
    "MIGRATIONS",
    "fetch_row",
    "has_trigrams",
    "migrate",
    "schema_version",
]

_APPLICATION_ID = 0x45444745  # "EDGE", in the header of our files
BUSY_TIMEOUT_S = 2.0  # wait for other processes that write; a live session waits meanwhile

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
