"""The tables of the history, and how a file of an older version gets them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

__all__ = [
    "INDEX",
    "MIGRATIONS",
    "PATIENCE_S",
    "has_trigrams",
    "migrate",
    "patiently",
    "version_of",
]

_OURS = 0x45444745  # "EDGE": the application_id by which a file says whose it is
PATIENCE_S = 2.0  # for other processes that write; a live session waits meanwhile

# Statements that lead from each schema version to the next: only ever add to the end.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # owner: who may read it, "" where nobody logs in. created: microseconds since 1970, UTC.
        # plain: the title, folded for searching.
        """CREATE TABLE records (
            id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL,
            title TEXT NOT NULL, plain TEXT NOT NULL, created INTEGER NOT NULL,
            duration_s REAL NOT NULL, language TEXT, target TEXT, model TEXT)""",
        # One cue of what was said, or of what it means in the target language. indexed: whether
        # `found` knows it, which a Python without FTS5 leaves to the next one that has it.
        """CREATE TABLE entries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            record INTEGER NOT NULL REFERENCES records ON DELETE CASCADE,
            translated INTEGER NOT NULL, start REAL, end REAL, text TEXT NOT NULL,
            plain TEXT NOT NULL, indexed INTEGER NOT NULL)""",
        "CREATE INDEX entries_of_record ON entries (record)",
        "CREATE INDEX entries_not_indexed ON entries (id) WHERE NOT indexed",
    ),
)

# Trigrams find parts of words, and words in languages that put no spaces between them.
INDEX = """CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5 (
    plain, content='entries', content_rowid='id', tokenize='trigram')"""


def has_trigrams() -> bool:
    """Whether this Python's SQLite has FTS5 with trigrams: most since SQLite 3.34."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(INDEX.format(name="probe"))
        except sqlite3.OperationalError:
            return False
        return True


def version_of(connection: sqlite3.Connection) -> int | None:
    """The schema's; 0: nothing is there yet. None: the file is not ours."""
    (tables,) = patiently(connection, "SELECT count(*) FROM sqlite_master")
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version if owner == _OURS or not tables else None


def migrate(connection: sqlite3.Connection) -> None:
    # Asked again: another process may have done it since.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={_OURS}")
    connection.execute(f"PRAGMA user_version={max(version, len(MIGRATIONS))}")


def patiently(connection: sqlite3.Connection, statement: str) -> tuple[int, ...]:
    """One row of a statement for which SQLite itself does not wait while others write."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            row: tuple[int, ...] = connection.execute(statement).fetchone()
            return row
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.01)
