"""Writes a record to the history while its text arrives."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from edgeapp.history.store import Store
from edgeapp.history.text_folding import fold_text, strip_surrogates
from edgeapp.history.word_times import words_to_json
from edgeapp.subtitles.speakers import speaker_of
from pipelines import OutputError
from pipelines.subtitles import Cue, Timed

__all__ = [
    "Entry", "Heading", "Journal", "Kind", "entry_of", "from_microseconds", "insert_entry",
    "to_microseconds",
]  # fmt: skip

Kind = Literal["live", "file", "text"]
Entry = tuple[bool, float, float, str, str | None, str | None]
"""(translated, start, end, text, words, speaker): times in seconds, the words as JSON, or the
spans of a translation's doubtful ones."""

_RETRY_S = 10.0  # after a failure to write
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Heading:
    """What is known when a record begins.

    Attributes:
        owner: The person whose record it is; "" without logins.
        title: "" shows the beginning of the text.
        language: Code of the source language, if known.
        target: Code of the language translated into, if any.
        created: UTC.
    """

    owner: str
    kind: Kind
    title: str
    language: str | None
    target: str | None
    model: str | None
    created: datetime


class Journal:
    """Writes cues as they become final, each in a small transaction. Thread-safe.

    It never raises. Cues that could not be written are written with a later cue or by `close`.
    If the record is deleted meanwhile, later cues are discarded.
    """

    def __init__(
        self,
        store: Store | None,
        heading: Heading,
        warn: Callable[[str], None],
        *,
        background: bool = False,
    ) -> None:
        """
        Args:
            store: None: nothing is written.
            heading: of the record.
            warn: called with a message if writing fails.
            background: cues are written by a thread, at once; else before `add` returns.
        """
        self._store, self._heading, self._warn = store, heading, warn
        self._background = background
        self._writer: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()  # of what is not written yet, for which captions wait
        self._changed = threading.Condition(self._lock)
        self._writing = threading.Lock()  # held while the file is written
        self._pending: list[Entry] = []  # not written yet
        self._language, self._duration_s = heading.language, 0.0
        self._id: int | None = None
        self._file: tuple[int, int] | None = None  # identity of the file that holds the record
        self._retry_at = 0.0  # monotonic time of the next attempt after a failure

    @property
    def id(self) -> int | None:
        """Id of the record; None before its first cue was written."""
        return self._id

    def add(self, cue: Timed, translation: str | Timed | None = None) -> None:
        """Add a cue, with its translation if that is known already."""
        if isinstance(translation, str):
            translation = Cue(cue.start, cue.end, translation, speaker=speaker_of(cue))
        self.extend((cue,), () if translation is None else (translation,))

    def translate(self, cue: Timed) -> None:
        """Add a cue of the translation."""
        self.extend((), (cue,))

    def extend(self, cues: Iterable[Timed], translation: Iterable[Timed] = ()) -> None:
        """Add many cues in one transaction. Cues without text are left out."""
        entries = [(False, cue) for cue in cues] + [(True, cue) for cue in translation]
        with self._lock:
            if self._store is None:
                return
            for translated, cue in entries:
                if cue.text.strip():
                    self._pending.append(entry_of(cue, translated=translated))
                self._duration_s = max(self._duration_s, cue.end)
            if self._background:
                if self._writer is None:
                    self._writer = threading.Thread(
                        target=self._write_in_background, name="edgeapp-history", daemon=True
                    )
                    self._writer.start()
                self._changed.notify_all()
            ready = not self._background and time.monotonic() >= self._retry_at
        if ready:
            self._write()

    def describe(self, *, language: str | None = None, duration_s: float = 0.0) -> None:
        """Set the language and extend the duration; written with the next cue or by `close`."""
        with self._lock:
            self._language = language or self._language
            self._duration_s = max(self._duration_s, duration_s)

    def wait_until_written(self, timeout_s: float) -> None:
        """Wait until all cues so far are on disk, if the file is free."""
        with self._lock:
            self._changed.wait_for(
                lambda: not self._pending or time.monotonic() < self._retry_at, timeout_s
            )

    def close(self) -> None:
        """Write the remaining cues."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join()
        self._write()

    def _write_in_background(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closed or self._pending)
                while not self._closed and (left := self._retry_at - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._closed:
                    return
            self._write()

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                store, entries = self._store, list(self._pending)
            if store is None or (self._id is None and not entries):
                return
            try:
                record = store.run(lambda db: self._save(db, store, entries))
                store.settle()
            except OutputError as error:
                self._warn(str(error))
                with self._lock:
                    self._retry_at = time.monotonic() + _RETRY_S
                    self._changed.notify_all()
                return
            with self._lock:
                if record is None:  # deleted by the user: it must not be created again
                    self._store = None
                    self._pending.clear()
                else:
                    self._id, self._file = record, store.identity
                    del self._pending[: len(entries)]
                self._changed.notify_all()

    def _save(self, db: sqlite3.Connection, store: Store, entries: list[Entry]) -> int | None:
        """Write cues; returns the id of the record, None if it was deleted."""
        record = self._id
        # If the file was moved aside, the record continues in the new file.
        if record is None or self._file != store.identity:
            record = self._insert_record(db)
        else:
            updated = db.execute(
                "UPDATE records SET duration_s = ?, language = ? WHERE id = ?",
                (self._duration_s, self._language, record),
            )
            if not updated.rowcount:
                return None
        for entry in entries:
            insert_entry(db, record, entry)
        return record

    def _insert_record(self, db: sqlite3.Connection) -> int | None:
        head, title = self._heading, strip_surrogates(self._heading.title)
        created = to_microseconds(head.created)
        return db.execute(
            "INSERT INTO records (owner, kind, title, plain, created, duration_s, language, "
            "target, model) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (head.owner, head.kind, title, fold_text(title), created, self._duration_s,
             self._language, head.target, head.model),
        ).lastrowid  # fmt: skip


def entry_of(cue: Timed, *, translated: bool) -> Entry:
    """A cue as it is stored, with its words or doubts if it has any."""
    doubts = getattr(cue, "doubts", ()) if translated else ()
    words = json.dumps(doubts) if doubts else words_to_json(getattr(cue, "words", ()))
    text = strip_surrogates(cue.text)
    speaker = strip_surrogates(speaker_of(cue)) or None
    return translated, cue.start, cue.end, text, words and strip_surrogates(words), speaker


def insert_entry(db: sqlite3.Connection, record: int | None, entry: Entry) -> None:
    """Add a cue to a record, in the caller's transaction."""
    *cue, text, words, speaker = entry
    db.execute(
        "INSERT INTO entries "
        "(record, translated, start, end, text, plain, indexed, words, speaker) "
        "VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)",
        (record, *cue, text, fold_text(text), words, speaker),
    )


def to_microseconds(time: datetime) -> int:
    """The stored form of a time: microseconds since 1970 (UTC)."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(microseconds: int) -> datetime:
    """The time of a record from its stored form, microseconds since 1970 (UTC).

    A damaged number that is no time becomes 1970: the text of the record is as readable as before.
    """
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except (OverflowError, TypeError):
        return _EPOCH
