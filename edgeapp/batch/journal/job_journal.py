"""The journal of jobs: what was done, so that a run that was ended goes on where it was.

An SQLite file in the data folder, not beside the outputs, which may lie on a network share. A job
is an input with a model and options; its key is made from their content, so that a renamed file is
found again. Finished pieces are kept verbatim. The journal also knows the files that it has seen
written, so that no other file is ever replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from edgeapp.batch.journal.part_file import content_digest
from edgeapp.batch.journal.pieces import Piece
from edgeapp.file_lock import is_at, try_lock
from edgeapp.output_errors import output_errors
from pipelines import OutputError

__all__ = ["Job", "JobJournal", "JobRecord", "Origin", "State"]

_KEEP_DAYS = 30  # of jobs that no run has gone on with
_KEEP_FILES_DAYS = 365
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, verb TEXT, input TEXT, model TEXT, state TEXT, started REAL,
    finished REAL, audio_s REAL, worked_s REAL, message TEXT, outputs TEXT DEFAULT '{}',
    lines INTEGER, choices TEXT DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS pieces (
    key TEXT REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER, content TEXT,
    PRIMARY KEY (key, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    path TEXT, digest TEXT, written REAL, source TEXT, source_digest TEXT,
    PRIMARY KEY (path, digest)
) WITHOUT ROWID;
"""
# Columns that a journal of an earlier version lacks.
_ADDED = {
    "jobs": {"lines": "INTEGER", "choices": "TEXT DEFAULT '{}'"},
    "files": {"source": "TEXT", "source_digest": "TEXT"},
}


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

    @property
    def digest(self) -> str | None:
        """SHA-256 of its content, or None."""
        if self.text is not None:
            return hashlib.sha256(self.text.encode(errors="replace")).hexdigest()
        if self.path is None:
            return None
        with suppress(OSError):
            return content_digest(self.path)
        return None


_COLUMNS = ", ".join(field.name for field in fields(JobRecord))
P = TypeVar("P", bound=Piece)


class JobJournal:
    """The journal in a file. Several runs may use it at the same time.

    Args:
        path: The file; it is created, for this user alone.

    Raises:
        OutputError: It cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.RLock()  # threads share the connection
        with output_errors(path), self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb"):
                pass
            self._connection = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            # The file is closed in any case: also if an error ends a run before `close`.
            weakref.finalize(self, self._connection.close)
            self._prepare()

    def _prepare(self) -> None:
        """Make or update the tables, and delete what is old."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(_SCHEMA)
        self._add_columns()
        self._connection.execute(
            "DELETE FROM jobs WHERE max(started, coalesce(finished, 0)) < ?",
            (time.time() - _KEEP_DAYS * 86_400,),
        )
        self._connection.execute(
            "DELETE FROM files WHERE written < ?",
            (time.time() - _KEEP_FILES_DAYS * 86_400,),
        )

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
        with self._errors():
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM jobs ORDER BY started"
            ).fetchall()
        return [_record(row) for row in rows]

    def record(self, key: str) -> JobRecord | None:
        """The job with a key."""
        with self._errors():
            row = self._connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else _record(row)

    def is_at_work(self, key: str) -> bool:
        """Whether a run works on a job now."""
        with self._lock(key) as free:
            return not free

    def note_file(self, path: Path, digest: str, origin: Origin | None = None) -> None:
        """Remember what is about to be written to a file.

        Args:
            path: The file.
            digest: SHA-256 of the content.
            origin: The input that it is made from; None if that is not known.

        Raises:
            OutputError: The journal cannot be written.
        """
        name = None if origin is None else _storable(origin.name)
        self.execute(
            "INSERT OR REPLACE INTO files (path, digest, written, source, source_digest) "
            "VALUES (?, ?, ?, ?, ?)",
            (
                _storable(str(path.absolute())),
                digest,
                time.time(),
                name,
                None if origin is None else origin.digest,
            ),
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
        where = (_storable(str(path.absolute())),)
        rows = self.execute("SELECT digest FROM files WHERE path = ?", where)
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
        row = self.execute(
            "SELECT source, source_digest FROM files WHERE path = ? ORDER BY written DESC LIMIT 1",
            (_storable(str(path.absolute())),),
        )
        if not row:
            return None
        source, digest = row[0]
        if digest is not None and digest == origin.digest:
            return None
        if source is None:
            return "an input that an earlier version did not note"
        if source == "-":
            return "another text, or of what was read from stdin"
        return None if source == _storable(origin.name) else str(source)

    def is_made_from(self, path: Path, origin: Origin) -> bool:
        """Return whether a file was made from an input as it is now, under any name."""
        digests = self.execute(
            "SELECT source_digest FROM files WHERE path = ? ORDER BY written DESC LIMIT 1",
            (_storable(str(path.absolute())),),
        )
        return digests == [(origin.digest,)] and origin.digest is not None

    def delete(self, key: str) -> None:
        """Delete a job."""
        self.execute("DELETE FROM jobs WHERE key = ?", (key,))

    def clear(self, state: State | None = None) -> int:
        """Delete jobs and their texts, except those that a run works on.

        Args:
            state: Only those in this state; None: all.

        Returns:
            How many were deleted.
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
            self.execute("DELETE FROM files", ())
        self.execute("VACUUM", ())
        return count

    @contextmanager
    def job(
        self, key: str, verb: str, input: str, model: str, piece: type[P]
    ) -> Iterator[Job[P] | None]:
        """Work on a job. Another run waits for no one: it gets None while this one works.

        Args:
            key: Of its input, model and options.
            verb: The command.
            input: Path of the input.
            model: Name of the model.
            piece: What its pieces are.

        Raises:
            OutputError: The journal cannot be written.
        """
        with self._lock(key) as mine:
            if not mine:
                yield None
                return
            with self._errors():
                self._connection.execute(
                    "INSERT INTO jobs (key, verb, input, model, state, started, worked_s, message) "
                    "VALUES (?, ?, ?, ?, ?, ?, 0, '') "
                    "ON CONFLICT (key) DO UPDATE SET input = excluded.input, "
                    "started = excluded.started",
                    (key, verb, _storable(input), model, State.RUNNING, time.time()),
                )
            yield Job(self, key, piece)

    def _add_columns(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for table, columns in _ADDED.items():
            there = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
            for name, kind in columns.items():
                if name not in there:
                    self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
        self._connection.execute("COMMIT")

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

    def execute(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Run one statement, in a transaction of its own.

        Raises:
            OutputError: The journal cannot be written.
        """
        with self._errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._mutex:
                yield
        except sqlite3.DatabaseError as error:
            raise OutputError(
                f"the journal {self._path} cannot be used: {error}; move it away, or leave it out "
                "with --no-journal"
            ) from error

    def close(self) -> None:
        """Close the file. Whatever uses the journal afterwards raises OutputError."""
        with self._mutex:
            self._connection.close()


class Job(Generic[P]):
    """A job that this run works on.

    Args:
        journal: The journal.
        key: Of the job.
        piece: What its pieces are.
    """

    def __init__(self, journal: JobJournal, key: str, piece: type[P]) -> None:
        self._journal, self._key, self._piece = journal, key, piece
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
        assert record is not None, "JobJournal.job has made it"
        return record

    @property
    def pieces(self) -> list[P]:
        """All that was finished."""
        return list(self.stored())

    def stored(self) -> Iterator[P]:
        """The pieces one by one, so that a large text is not read into memory."""
        number = 0
        while rows := self._journal.execute(
            "SELECT content FROM pieces WHERE key = ? AND number >= ? ORDER BY number LIMIT 100",
            (self._key, number),
        ):
            yield from (self._piece.of_json(content) for (content,) in rows)
            number += len(rows)

    def forget(self) -> None:
        """Drop what was done, to begin anew."""
        self._journal.execute("DELETE FROM pieces WHERE key = ?", (self._key,))
        self._journal.execute(
            "UPDATE jobs SET state = ?, worked_s = 0, outputs = '{}', choices = '{}' WHERE key = ?",
            (State.RUNNING, self._key),
        )
        self._count, self._is_done = 0, False

    def add(self, piece: P) -> None:
        """Keep what was finished since the last piece."""
        self._journal.execute(
            "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?)",
            (self._key, self._count, piece.as_json()),
        )
        self._count += 1

    def choose(self, **choices: str) -> None:
        """Remember what was chosen during the work."""
        self._journal.execute(
            "UPDATE jobs SET choices = ? WHERE key = ?", (json.dumps(choices), self._key)
        )

    def running(self) -> None:
        """The work begins, or goes on."""
        if self._is_done:
            return
        self._journal.execute(
            "UPDATE jobs SET state = ?, message = '' WHERE key = ?", (State.RUNNING, self._key)
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
        if lines is not None:
            self._journal.execute("UPDATE jobs SET lines = ? WHERE key = ?", (lines, self._key))
        written = {_storable(str(path.absolute())): how for path, how in outputs.items()}
        for other in self._journal.records():
            if other.key != self._key and other.outputs.keys() & written.keys():
                kept = {path: how for path, how in other.outputs.items() if path not in written}
                self._journal.execute(
                    "UPDATE jobs SET outputs = ? WHERE key = ?", (json.dumps(kept), other.key)
                )
        self._end(State.DONE, audio_s, "", self.record.outputs | written)

    def stopped(self, audio_s: float | None, error: BaseException) -> None:
        """The work was ended: by an error, which is a failure, or by a signal, which is none.

        What is decoded stays done: only its files could not be written again.
        """
        if self._is_done:
            return
        if isinstance(error, Exception):
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._end(State.FAILED, audio_s, _storable(message), {})
        else:
            self._end(State.RUNNING, audio_s, "", {})

    def _end(
        self, state: State, audio_s: float | None, message: str, outputs: dict[str, str]
    ) -> None:
        self._journal.execute(
            "UPDATE jobs SET state = ?, finished = ?, audio_s = ?, message = ?, outputs = ?, "
            "worked_s = worked_s + ? WHERE key = ?",
            (
                state,
                time.time(),
                audio_s,
                message,
                json.dumps(outputs),
                time.monotonic() - self._begun,
                self._key,
            ),
        )


def _record(row: tuple[Any, ...]) -> JobRecord:
    values = dict(zip((field.name for field in fields(JobRecord)), row, strict=True))
    values["state"] = State(values["state"])
    values["outputs"] = json.loads(values["outputs"])
    values["choices"] = json.loads(values["choices"])
    return JobRecord(**values)


def _storable(text: str) -> str:
    """A text that SQLite takes: bytes of a file name that are not UTF-8 are written as escapes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
