"""The journal of jobs: what was done, so that a run that was ended goes on where it was.

An SQLite file in the data folder, not beside the outputs, which may lie on a network share. A job
is an input with a model and options; its key is made from their content, so that a renamed file is
found again. Finished pieces are kept verbatim. The journal also knows the files that it has seen
written, so that no other file is ever replaced.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from edgeapp.batch.journal.digests import FileDigests
from edgeapp.batch.journal.pieces import Piece
from edgeapp.console import print_note
from edgeapp.file_lock import is_at, try_lock
from edgeapp.output_errors import output_errors
from edgeapp.store.database import Database
from edgeapp.store.schema import Schema
from pipelines import OutputError

__all__ = ["Job", "JobJournal", "JobRecord", "Origin", "State"]

_KEEP_DAYS = 30  # of jobs that no run has gone on with
_KEEP_FILES_DAYS = 365
_DELETED = "the journal was deleted while a run used it: run the command again"
_TABLES = (
    """CREATE TABLE IF NOT EXISTS jobs (
        key TEXT PRIMARY KEY, verb TEXT, input TEXT, model TEXT, state TEXT, started REAL,
        finished REAL, audio_s REAL, worked_s REAL, message TEXT, lines INTEGER,
        choices TEXT DEFAULT '{}')""",
    # A file holds the results of the last job that has written it.
    """CREATE TABLE outputs (
        path TEXT PRIMARY KEY, job TEXT REFERENCES jobs (key) ON DELETE CASCADE, rendering TEXT
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS pieces (
        key TEXT REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER, content TEXT,
        PRIMARY KEY (key, number)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS files (
        path TEXT, digest TEXT, written REAL, source TEXT, source_digest TEXT,
        PRIMARY KEY (path, digest)) WITHOUT ROWID""",
    "CREATE TABLE digests (file TEXT PRIMARY KEY, digest TEXT, noted REAL) WITHOUT ROWID",
    "CREATE INDEX jobs_of_input ON jobs (input, state)",
    "CREATE INDEX outputs_of_job ON outputs (job)",
)
# Columns that journals without a version may lack.
_ADDED = {
    "jobs": {"lines": "INTEGER", "choices": "TEXT DEFAULT '{}'"},
    "files": {"source": "TEXT", "source_digest": "TEXT"},
}


def _make_tables(db: sqlite3.Connection) -> None:
    """Make the tables, or complete those of a journal that did not record its version."""
    for statement in _TABLES:
        db.execute(statement)
    for table, columns in _ADDED.items():
        there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        for name in columns.keys() - there:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {columns[name]}")
    if any(row[1] == "outputs" for row in db.execute("PRAGMA table_info(jobs)")):
        db.execute(
            "INSERT OR REPLACE INTO outputs SELECT each.key, jobs.key, each.value FROM jobs, "
            "json_each(CASE WHEN json_valid(outputs) THEN outputs ELSE '{}' END) AS each "
            "ORDER BY finished"
        )
        # An earlier version would go by its own column, which then is out of step, so that it gets
        # none. SQLite before 3.35 cannot drop it.
        db.execute("ALTER TABLE jobs RENAME COLUMN outputs TO outputs_before")


SCHEMA = Schema(
    "journal",
    0x4544474A,  # "EDGJ"
    (_make_tables,),
    advice="move it away, or leave it out with --no-journal",
    unmarked="SELECT key, verb, input, model, state, worked_s FROM jobs LIMIT 0",
    synchronous="FULL",
    busy_s=30.0,
)


class State(StrEnum):
    """How far a job is. RUNNING is also what a run that was killed leaves."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class JobRecord:
    """What the journal says of a job.

    Attributes:
        key: Of its input, model and options.
        verb: The command.
        input: Path of the input.
        model: Name of the model.
        state: How far it is.
        started: When the last run began (seconds since 1970).
        finished: When it ended, or None.
        audio_s: Seconds of sound; None for a text, or if not known.
        worked_s: Seconds of work, over all runs that were not killed.
        message: Why it failed, or "".
        outputs: The files that were written and hold its results still, each with how it was
            rendered.
        lines: Lines, or cues, of a text; None for a recording.
        choices: What was chosen during the work, such as the model for a detected language.
    """

    key: str
    verb: str
    input: str
    model: str
    state: State
    started: float
    finished: float | None
    audio_s: float | None
    worked_s: float
    message: str
    outputs: dict[str, str]
    lines: int | None
    choices: dict[str, str]


@dataclass(frozen=True)
class Origin:
    """An input, as the input of results.

    Attributes:
        name: Its absolute path; its address; "-" for stdin and for a text of the command line.
        path: The file that it can be read from; None: it can be read once only.
        text: The text of the command line, or None.
    """

    name: str
    path: Path | None = None
    text: str | None = None

    @classmethod
    def of(cls, path: str, shown: str) -> Origin:
        """Return the origin for an input that is read from `path`, and named `shown`."""
        if path == "-" or not os.path.isfile(path):  # noqa: PTH113  # not for any length of a name
            return cls("-")
        absolute = Path(path).absolute()
        return cls(str(absolute) if shown == path else shown, absolute)


_COLUMNS = ", ".join(field.name for field in fields(JobRecord)).replace(
    "outputs",
    "(SELECT json_group_object(path, rendering) FROM outputs WHERE job = jobs.key) AS outputs",
)
P = TypeVar("P", bound=Piece)


class JobJournal:
    """The journal in a file. Several runs may use it at the same time.

    Args:
        path: The file; it is created, for this user alone.
        warn: Called with one line if the file was damaged, and is begun anew.

    Attributes:
        database: The file.
        digests: Digests of files, remembered in the journal.

    Raises:
        OutputError: It cannot be used.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = print_note) -> None:
        self._path, self.database = path, Database(path, SCHEMA, warn)
        self._closed = False
        self.digests = FileDigests(self.database)
        now = time.time()
        first, *others = (
            (f"DELETE FROM {table} WHERE {time_of_use} < ?", (now - days * 86_400,))
            for table, time_of_use, days in (
                ("jobs", "max(started, coalesce(finished, 0))", _KEEP_DAYS),
                ("digests", "noted", _KEEP_DAYS),
                ("files", "written", _KEEP_FILES_DAYS),
            )
        )
        self.execute(*first, *others)
        self._delete_damaged(now - _KEEP_DAYS * 86_400)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._path.parent

    def records(self) -> list[JobRecord]:
        """All jobs, the latest last."""
        return [
            _record(row) for row in self.select(f"SELECT {_COLUMNS} FROM jobs ORDER BY started")
        ]

    def record(self, key: str) -> JobRecord | None:
        """The job with a key."""
        rows = self.select(f"SELECT {_COLUMNS} FROM jobs WHERE key = ?", key)
        return _record(rows[0]) if rows else None

    def inputs(self, state: State) -> set[str]:
        """The inputs of all jobs in a state."""
        return {name for (name,) in self.select("SELECT input FROM jobs WHERE state = ?", state)}

    def has_failed(self, source: str) -> bool:
        """Whether an input with a name has failed."""
        query = "SELECT 1 FROM jobs WHERE input = ? AND state = ? LIMIT 1"
        return bool(self.select(query, _storable(source), State.FAILED))

    def is_at_work(self, key: str) -> bool:
        """Whether a run works on a job now."""
        with self._lock(key) as free:
            return not free

    def note_file(self, path: Path, digest: str, origin: Origin | None = None) -> None:
        """Remember what is about to be written to a file: its SHA-256, and the input that it is
        made from, if that is known.

        Raises:
            OutputError: The journal cannot be written.
        """
        name, made_from = None, None
        if origin is not None:
            name, made_from = _storable(origin.name), self._digest_of(origin)
        self.execute(
            "INSERT OR REPLACE INTO files (path, digest, written, source, source_digest) "
            "VALUES (?, ?, ?, ?, ?)",
            (_storable(str(path.absolute())), digest, time.time(), name, made_from),
        )

    def forget_earlier_files(self, path: Path) -> None:
        """Forget all that was written to a file but the last."""
        name = _storable(str(path.absolute()))
        self.execute(
            "DELETE FROM files WHERE path = ? AND written < "
            "(SELECT max(written) FROM files WHERE path = ?)",
            (name, name),
        )

    def digests_of(self, path: Path) -> set[str]:
        """The SHA-256 of what runs have written to a file; more than one after a power cut."""
        name = _storable(str(path.absolute()))
        rows = self.select("SELECT digest FROM files WHERE path = ?", name)
        return {digest for (digest,) in rows}

    def other_origin(self, path: Path, origin: Origin) -> str | None:
        """Return the name of the input whose result a file holds; None for the same input.

        An input is the same at its path, and with its content under any name. What was read from
        stdin is never the same, nor is an input that is not known: of a file that an earlier
        version has written.

        Args:
            path: The file.
            origin: The input that would replace it.
        """
        source, digest = self._made_from(path) or ("", None)
        if source == "" or (digest is not None and digest == self._digest_of(origin)):
            return None
        if source is None:
            return "an input that an earlier version did not note"
        if source == "-":
            return "another text, or of what was read from stdin"
        return None if source == _storable(origin.name) else str(source)

    def is_made_from(self, path: Path, origin: Origin) -> bool:
        """Return whether a file was made from an input as it is now, under any name."""
        _, digest = self._made_from(path) or (None, None)
        return digest is not None and digest == self._digest_of(origin)

    def _made_from(self, path: Path) -> tuple[str | None, str | None] | None:
        """Return name and digest of the input that a file was last made from, or None."""
        query = (
            "SELECT source, source_digest FROM files WHERE path = ? ORDER BY written DESC LIMIT 1"
        )
        rows = self.select(query, _storable(str(path.absolute())))
        return rows[0] if rows else None

    def _digest_of(self, origin: Origin) -> str | None:
        """Return the SHA-256 of an input's content, or None."""
        if origin.text is not None:
            return hashlib.sha256(origin.text.encode(errors="replace")).hexdigest()
        return None if origin.path is None else self.digests.of(origin.path)

    def delete(self, key: str) -> None:
        """Delete a job."""
        self.execute("DELETE FROM jobs WHERE key = ?", (key,))

    def clear(self, state: State | None = None) -> int:
        """Delete jobs and their texts, except those that a run works on; return how many.

        Args:
            state: Only those in this state; None: all, and what is known of files.
        """
        count = 0
        for record in self.records():
            if state not in (None, record.state):
                continue
            with self._lock(record.key) as mine:
                if mine:
                    self.delete(record.key)
                    count += 1
        if state is None:
            self._delete_damaged(math.inf)
            self.execute("DELETE FROM files", (), ("DELETE FROM digests", ()))
        self.database.wipe(shrink=True)
        return count

    def _delete_damaged(self, before: float) -> None:
        """Delete the damaged journals that were last written before a time."""
        for path in self.database.set_aside():
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()

    @contextmanager
    def job(
        self, key: str, verb: str, input: str, model: str, piece: type[P]
    ) -> Iterator[Job[P] | None]:
        """Work on a job, which has pieces of a kind; the other arguments are those of JobRecord.

        Another run gets None while this one works.

        Raises:
            OutputError: The journal cannot be written.
        """
        with self._lock(key) as mine:
            if not mine:
                yield None
                return
            begin = (
                "INSERT INTO jobs (key, verb, input, model, state, started, worked_s, message) "
                "VALUES (?, ?, ?, ?, ?, ?, 0, '') "
                "ON CONFLICT (key) DO UPDATE SET input = excluded.input, "
                "started = excluded.started",
                (key, verb, _storable(input), model, State.RUNNING, time.time()),
            )
            self.execute(*begin)
            yield Job(self, key, piece, begin)

    @contextmanager
    def _lock(self, key: str) -> Iterator[bool]:
        """Whether this run alone works on a job. The system frees the lock of a killed run."""
        path = self._path.with_name(f"{self._path.name}.{key[:16]}.lock")
        with output_errors(path):
            file = path.open("ab")
        with file:
            # A run that has just ended deletes the file: its lock would be worth nothing then.
            mine = try_lock(file.fileno()) and is_at(file.fileno(), path)
            try:
                yield mine
            finally:
                if mine:
                    with suppress(OSError):  # Windows deletes no open file
                        path.unlink()

    def select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            OutputError: The journal cannot be read.
        """
        return self._open.run(lambda db: db.execute(query, values).fetchall(), writes=False)

    def execute(
        self, statement: str, values: Sequence[object], *more: tuple[str, Sequence[object]]
    ) -> None:
        """Run statements, each with its values, in one transaction.

        Raises:
            OutputError: The journal cannot be written.
        """

        def work(db: sqlite3.Connection) -> None:
            for change in ((statement, values), *more):
                db.execute(*change)

        self._open.run(work)

    @property
    def _open(self) -> Database:
        if self._closed:
            raise OutputError(f"the journal {self._path} is closed")
        return self.database

    def close(self) -> None:
        """Close the file. Whatever uses the journal afterwards raises OutputError."""
        if not self._closed:
            self.digests.close()
        self._closed = True
        self.database.close()


class Job(Generic[P]):
    """A job that this run works on.

    If the journal is deleted or begun anew meanwhile, the job is put into the new one, without the
    pieces: what is finished then is done, and what is ended begins anew.
    """

    def __init__(
        self, journal: JobJournal, key: str, piece: type[P], begin: tuple[str, Sequence[object]]
    ) -> None:
        self._journal, self._key, self._piece, self._begin = journal, key, piece, begin
        self._begun, self._is_done, self._count = time.monotonic(), False, 0
        try:
            self._count = sum(1 for _ in self.stored())
        except (ValueError, KeyError, TypeError):  # of another version: begin anew
            self.forget()
        self._is_done = self.record.state is State.DONE

    @property
    def record(self) -> JobRecord:
        """What the journal says of the job."""
        record = self._journal.record(self._key)
        if record is None:
            raise OutputError(_DELETED)
        return record

    @property
    def pieces(self) -> list[P]:
        """All that was finished."""
        return list(self.stored())

    def stored(self) -> Iterator[P]:
        """The pieces one by one, so that a large text is not read into memory.

        Raises:
            OutputError: The journal was deleted, and they with it.
        """
        number = 0
        while rows := self._journal.select(
            "SELECT content FROM pieces WHERE key = ? AND number >= ? ORDER BY number LIMIT 100",
            self._key,
            number,
        ):
            yield from (self._piece.of_json(content) for (content,) in rows)
            number += len(rows)
        if number < self._count:
            raise OutputError(_DELETED)

    def forget(self) -> None:
        """Drop what was done, to begin anew."""
        self._write(
            (
                "UPDATE jobs SET state = ?, worked_s = 0, choices = '{}' WHERE key = ?",
                (State.RUNNING, self._key),
            ),
            ("DELETE FROM pieces WHERE key = ?", (self._key,)),
            ("DELETE FROM outputs WHERE job = ?", (self._key,)),
        )
        self._count, self._is_done = 0, False

    def add(self, piece: P) -> None:
        """Keep what was finished since the last piece."""
        # A piece without those before it would be taken for the first one.
        self._write(
            (
                "INSERT OR REPLACE INTO pieces SELECT ?, ?, ? WHERE ? = 0 OR EXISTS "
                "(SELECT 1 FROM pieces WHERE key = ? AND number = ?)",
                (self._key, self._count, piece.as_json(), self._count, self._key, self._count - 1),
            )
        )
        self._count += 1

    def choose(self, **choices: str) -> None:
        """Remember what was chosen during the work."""
        self._write(("UPDATE jobs SET choices = ? WHERE key = ?", (json.dumps(choices), self._key)))

    def running(self) -> None:
        """The work begins, or goes on."""
        if self._is_done:
            return
        self._write(
            ("UPDATE jobs SET state = ?, message = '' WHERE key = ?", (State.RUNNING, self._key))
        )

    def done(
        self, audio_s: float | None, outputs: Mapping[Path, str], lines: int | None = None
    ) -> None:
        """All is decoded, and the outputs are written.

        Args:
            audio_s: Seconds of sound; None for a text, or if not known.
            outputs: The files, each with how it was rendered. They hold the results of no other
                job any more.
            lines: Lines, or cues, of a text; None for a recording.
        """
        statement = "INSERT OR REPLACE INTO outputs VALUES (?, ?, ?)"
        written = [
            (statement, (_storable(str(path.absolute())), self._key, how))
            for path, how in outputs.items()
        ]
        self._end(State.DONE, audio_s, "", lines, *written)
        self._journal.database.settle()

    def stopped(self, audio_s: float | None, error: BaseException) -> None:
        """The work was ended: by an error, which is a failure, or by a signal, which is none.

        What is decoded stays done: only its files could not be written again.
        """
        if self._is_done:
            return
        if isinstance(error, Exception):
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            state, message = State.FAILED, _storable(message)
        else:
            state, message = State.RUNNING, ""
        gone = ("DELETE FROM outputs WHERE job = ?", (self._key,))
        self._end(state, audio_s, message, None, gone)

    def _end(
        self,
        state: State,
        audio_s: float | None,
        message: str,
        lines: int | None,
        *changes: tuple[str, Sequence[object]],
    ) -> None:
        worked_s = time.monotonic() - self._begun
        ended = (
            "UPDATE jobs SET state = ?, finished = ?, audio_s = ?, message = ?, "
            "lines = coalesce(?, lines), worked_s = worked_s + ? WHERE key = ?",
            (state, time.time(), audio_s, message, lines, worked_s, self._key),
        )
        self._write(ended, *changes)

    def _write(self, *changes: tuple[str, Sequence[object]]) -> None:
        self._journal.execute(*self._begin, *changes)


def _record(row: tuple[Any, ...]) -> JobRecord:
    values = dict(zip((field.name for field in fields(JobRecord)), row, strict=True))
    values["state"] = State(values["state"])
    values["outputs"] = json.loads(values["outputs"])
    values["choices"] = json.loads(values["choices"])
    return JobRecord(**values)


def _storable(text: str) -> str:
    """A text that SQLite takes: bytes of a file name that are not UTF-8 are written as escapes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
