"""The journal of jobs: what was transcribed, so that a run that was ended goes on where it was.

An SQLite file in the data folder, not beside the outputs, which may lie on a network share. A job
is a recording with a model and options; its key is made from their content, so that a renamed file
is found again. Finished segments are kept verbatim.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeapp.output_errors import output_errors
from edgeapp.subtitles.formats import Cue
from pipelines import OutputError

if TYPE_CHECKING:
    from pipelines import Checkpoint, Segment

__all__ = ["Job", "JobJournal", "JobRecord", "Piece", "State"]

_KEEP_DAYS = 30  # of jobs that nobody has gone on with
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, verb TEXT, input TEXT, model TEXT, state TEXT, started REAL,
    finished REAL, audio_s REAL, worked_s REAL, message TEXT, outputs TEXT DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS pieces (
    key TEXT REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER, content TEXT,
    PRIMARY KEY (key, number)
) WITHOUT ROWID;
"""


class State(StrEnum):
    """How far a job is. RUNNING is also what a run that was killed leaves."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class JobRecord:
    """What the journal says of a job.

    Attributes:
        key: Of its recording, model and options.
        verb: The command.
        input: Path of the recording.
        model: Name of the model.
        state: How far it is.
        started: When the last run began (seconds since 1970).
        finished: When it ended, or None.
        audio_s: Seconds of sound; None if not known.
        worked_s: Seconds of work, over all runs that were not killed.
        message: Why it failed, or "".
        outputs: The files that were written and hold its results still, each with how it was
            rendered.
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


@dataclass(frozen=True)
class Piece:
    """What was finished between two checkpoints.

    Attributes:
        segments: The recognised segments.
        cues: Their translations, as far as sentences are complete.
        checkpoint: Where the work goes on.
    """

    segments: tuple[Segment, ...]
    cues: tuple[Cue, ...]
    checkpoint: Checkpoint

    def as_json(self) -> str:
        """The piece as text; floats keep all their digits."""
        return json.dumps(
            {
                "segments": [asdict(segment) for segment in self.segments],
                "cues": [asdict(cue) for cue in self.cues],
                "checkpoint": asdict(self.checkpoint),
            },
            ensure_ascii=False,
        )

    @classmethod
    def of_json(cls, text: str) -> Piece:
        """The piece that `as_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: It was written by another version.
        """
        from pipelines import Alternative, Checkpoint, Segment, Word

        def segment(values: dict[str, Any]) -> Segment:
            words = tuple(Word(**word) for word in values.pop("words"))
            alternatives = tuple(
                Alternative(each["text"], each["score"], tuple(each["tokens"]))
                for each in values.pop("alternatives", ())
            )
            values["tokens"] = tuple(values["tokens"])
            return Segment(**values, words=words, alternatives=alternatives)

        content = json.loads(text)
        checkpoint = content["checkpoint"]
        return cls(
            tuple(map(segment, content["segments"])),
            tuple(Cue(**cue) for cue in content["cues"]),
            Checkpoint(**{**checkpoint, "prompt": tuple(checkpoint["prompt"])}),
        )


class JobJournal:
    """The journal in a file. Several runs may use it at the same time.

    Args:
        path: The file; it is created, for this user alone.

    Raises:
        OutputError: It cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with output_errors(path), self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb"):
                pass
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.executescript(_SCHEMA)
            self._connection.execute(
                "DELETE FROM jobs WHERE max(started, coalesce(finished, 0)) < ?",
                (time.time() - _KEEP_DAYS * 86_400,),
            )

    def records(self) -> list[JobRecord]:
        """All jobs, the latest last."""
        with self._errors():
            rows = self._connection.execute("SELECT * FROM jobs ORDER BY started").fetchall()
        return [_record(row) for row in rows]

    def record(self, key: str) -> JobRecord | None:
        """The job with a key."""
        with self._errors():
            row = self._connection.execute("SELECT * FROM jobs WHERE key = ?", (key,)).fetchone()
        return None if row is None else _record(row)

    def is_at_work(self, key: str) -> bool:
        """Whether a run works on a job now."""
        with self._lock(key) as free:
            return not free

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
                    self.execute("DELETE FROM jobs WHERE key = ?", (record.key,))
                    count += 1
        self.execute("VACUUM", ())
        return count

    @contextmanager
    def job(self, key: str, verb: str, input: str, model: str) -> Iterator[Job | None]:
        """Work on a job. Another run waits for no one: it gets None while this one works.

        Args:
            key: Of its recording, model and options.
            verb: The command.
            input: Path of the recording.
            model: Name of the model.

        Raises:
            OutputError: The journal cannot be written.
        """
        with self._lock(key) as mine:
            if not mine:
                yield None
                return
            with self._errors():
                self._connection.execute(
                    "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, 0, '', '{}') "
                    "ON CONFLICT (key) DO UPDATE SET input = excluded.input, "
                    "started = excluded.started",
                    (key, verb, _storable(input), model, State.RUNNING, time.time()),
                )
            yield Job(self, key)

    @contextmanager
    def _lock(self, key: str) -> Iterator[bool]:
        """Whether this run alone works on a job. The system frees the lock of a killed run."""
        path = self._path.with_name(f"{self._path.name}.{key[:16]}.lock")
        with output_errors(path):
            file = path.open("ab")
        with file:
            # A run that has just ended deletes the file: its lock would be worth nothing then.
            mine = _locked(file) and _is_at(file, path)
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
            yield
        except sqlite3.DatabaseError as error:
            raise OutputError(
                f"the journal {self._path} cannot be used: {error}; move it away, or leave it out "
                "with --no-journal"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Job:
    """A job that this run works on.

    Args:
        journal: The journal.
        key: Of the job.
    """

    def __init__(self, journal: JobJournal, key: str) -> None:
        self._journal, self._key = journal, key
        self._begun, self._is_done = time.monotonic(), False
        rows = journal.execute("SELECT content FROM pieces WHERE key = ? ORDER BY number", (key,))
        try:
            self.pieces = [Piece.of_json(content) for (content,) in rows]
        except (ValueError, KeyError, TypeError):  # of another version: begin anew
            self.forget()
        self._is_done = self.record.state is State.DONE

    @property
    def record(self) -> JobRecord:
        """What the journal says of the job."""
        record = self._journal.record(self._key)
        assert record is not None, "JobJournal.job has made it"
        return record

    def forget(self) -> None:
        """Drop what was done, to begin anew."""
        self._journal.execute("DELETE FROM pieces WHERE key = ?", (self._key,))
        self._journal.execute(
            "UPDATE jobs SET state = ?, worked_s = 0, outputs = '{}' WHERE key = ?",
            (State.RUNNING, self._key),
        )
        self.pieces, self._is_done = [], False

    def add(self, piece: Piece) -> None:
        """Keep what was finished since the last piece."""
        self._journal.execute(
            "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?)",
            (self._key, len(self.pieces), piece.as_json()),
        )
        self.pieces.append(piece)

    def running(self) -> None:
        """The work begins, or goes on."""
        if self._is_done:
            return
        self._journal.execute(
            "UPDATE jobs SET state = ?, message = '' WHERE key = ?", (State.RUNNING, self._key)
        )

    def done(self, audio_s: float | None, outputs: Mapping[Path, str]) -> None:
        """All is decoded, and the outputs are written.

        Args:
            audio_s: Seconds of sound; None if not known.
            outputs: The files, each with how it was rendered. They hold the results of no other
                job any more.
        """
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
    return JobRecord(**values)


def _storable(text: str) -> str:
    """A text that SQLite takes: bytes of a file name that are not UTF-8 are written as escapes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _locked(file: IO[bytes]) -> bool:
    """Lock a file for this process, unless another one has."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
