"""The SQLite file of the history: its tables, and the index of its full text."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from edgeapp.history.recovery import read_rows, restore_rows
from edgeapp.store.database import Database, identity_of, transact
from edgeapp.store.schema import MAGIC, Schema
from pipelines import OutputError

__all__ = ["SCHEMA", "Store"]

_MERGED_PAGES = 64  # of the index, written in one transaction
_PAUSE_S = 0.001

SCHEMA = Schema(
    "history",
    0x45444745,  # "EDGE"
    (
        (
            # owner: the person who can read it, "" without logins. created: microseconds since
            # 1970, UTC. plain: the title, folded for searching.
            """CREATE TABLE records (
                id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL,
                title TEXT NOT NULL, plain TEXT NOT NULL, created INTEGER NOT NULL,
                duration_s REAL NOT NULL, language TEXT, target TEXT, model TEXT)""",
            # One cue of the text or of its translation. plain: the text, folded for searching.
            # indexed: not used since version 4.
            """CREATE TABLE entries (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                record INTEGER NOT NULL REFERENCES records ON DELETE CASCADE,
                translated INTEGER NOT NULL, start REAL, end REAL, text TEXT NOT NULL,
                plain TEXT NOT NULL, indexed INTEGER NOT NULL)""",
            "CREATE INDEX entries_of_record ON entries (record)",
            "CREATE INDEX entries_not_indexed ON entries (id) WHERE NOT indexed",
        ),
        (
            # sound: name of the recording in the folder beside the file. deleted: when the record
            # was put into the trash, as `created`. words: of a cue, as JSON (word_times.py).
            "ALTER TABLE records ADD COLUMN sound TEXT",
            "ALTER TABLE records ADD COLUMN deleted INTEGER",
            "ALTER TABLE entries ADD COLUMN words TEXT",
        ),
        # speaker: of a cue; NULL if it is not known.
        ("ALTER TABLE entries ADD COLUMN speaker TEXT",),
        # Triggers keep the index of the full text, which earlier versions would change once more.
        ("DROP INDEX entries_not_indexed",),
    ),
    advice="choose another history file",
    repair="`edgeapp history repair` finds out, or ",
)

# A trigram index finds parts of words, and words in languages written without spaces.
_INDEX = """CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5 (
    plain, content='entries', content_rowid='id', tokenize='trigram')"""
_ADD = "INSERT INTO found (rowid, plain) VALUES (new.id, new.plain);"
_REMOVE = "INSERT INTO found (found, rowid, plain) VALUES ('delete', old.id, old.plain);"
_TRIGGERS = {
    "found_added": f"AFTER INSERT ON entries BEGIN {_ADD} END",
    "found_removed": f"AFTER DELETE ON entries BEGIN {_REMOVE} END",
    "found_changed": "AFTER UPDATE OF plain ON entries WHEN old.plain IS NOT new.plain "
    f"BEGIN {_REMOVE} {_ADD} END",
}


class Store(Database):
    """The file of the history. Of a damaged one the readable rows are copied to a new file.

    Args:
        path: Path of the file, which is created on first use.
        warn: Called with one line if the file was set aside.

    Attributes:
        indexed: Whether this Python's SQLite can use the search index.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        super().__init__(path, SCHEMA, warn)
        self._beginning = threading.Lock()  # held while work in the background begins
        self._worker: threading.Thread | None = None
        self.indexed = _has_trigrams()

    def check(self) -> bool:
        """Read every page, and repair what is damaged; return whether the file was sound.

        Raises:
            OutputError: The file cannot be used.
        """
        with self._lock, self._errors():
            if self._has_damaged_beginning():
                self.identity = identity_of(self.path)
                self._salvage()
                return False
        return super().check()

    def wipe(self, *, shrink: bool = False) -> None:
        """Remove deleted text from the file and its write-ahead log, in steps: others write between
        them."""
        self.settle()  # Copies go even if what follows fails.
        with suppress(OutputError):
            if self.indexed:
                self._merge_index()
            some = "SELECT EXISTS (SELECT 1 FROM records)"
            (kept,) = self.run(lambda db: db.execute(some).fetchone(), writes=False)
            super().wipe(shrink=shrink or not kept)

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
        super().close()

    def _opened(self, connection: sqlite3.Connection) -> None:
        """Bring the index in step with the text. A SQLite without trigrams drops the triggers, and
        the next one with them builds the index again."""
        there = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master")
        } & _TRIGGERS.keys()
        if there == (_TRIGGERS.keys() if self.indexed else set()):
            return
        transact(connection, self._make_index)

    def _make_index(self, connection: sqlite3.Connection) -> None:
        for name, trigger in _TRIGGERS.items():
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
            if self.indexed:
                connection.execute(_INDEX.format(name="found"))
                connection.execute(f"CREATE TRIGGER {name} {trigger}")
        if self.indexed:
            connection.execute("INSERT INTO found (found) VALUES ('rebuild')")

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

    def _repair(self, error: sqlite3.DatabaseError) -> None:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_VTAB:
            try:  # only the index is damaged
                self._connect().execute("INSERT INTO found (found) VALUES ('rebuild')")
                return
            except sqlite3.DatabaseError as other:  # or what it is built from
                error = other
        super()._repair(error)

    def _is_sound(self, connection: sqlite3.Connection) -> bool:
        super()._is_sound(connection)
        if self.indexed:
            connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
        return True

    def _has_damaged_beginning(self) -> bool:
        """Return whether the file is no database, but has rows of a history in its pages."""
        if SCHEMA.problem(self.path) is None or not self.path.is_file():
            return False
        with self.path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return False  # another program's database
        return bool(read_rows(self.path).records)

    def _restore(self, connection: sqlite3.Connection, aside: Path) -> str:
        records, entries = restore_rows(connection, read_rows(aside))
        return f"{records} records with {entries} lines could be read and are in a new history"


def _has_trigrams() -> bool:
    """Return whether this Python's SQLite has FTS5 with trigrams, as most have since 3.34."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(_INDEX.format(name="probe"))
        except sqlite3.OperationalError:
            return False
        return True
