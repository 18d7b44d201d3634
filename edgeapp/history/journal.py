"""What is going on, written down while it goes on."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from edgeapp.history.store import Store
from edgeapp.history.text_folding import fold_text, strip_surrogates
from edgeapp.subtitles.formats import Cue, Timed
from pipelines import OutputError

__all__ = ["Heading", "Journal", "Kind", "moment"]

Kind = Literal["live", "file", "text"]

_TRY_AGAIN_S = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Heading:
    """What is known when a recording begins. owner: whose it is. created: UTC."""

    owner: str
    kind: Kind
    title: str
    language: str | None
    target: str | None
    model: str | None
    created: datetime


class Journal:
    """Takes cues as they become final, each a small transaction; any thread may call it.

    It never raises. What could not be written is tried again: with a later cue, and at the end.
    When its record is deleted meanwhile, it takes no more. store: None keeps nothing.
    """

    def __init__(self, store: Store | None, heading: Heading, warn: Callable[[str], None]) -> None:
        self._store, self._heading, self._warn = store, heading, warn
        self._lock = threading.Lock()
        self._waiting: list[tuple[bool, float, float, str]] = []
        self._language, self._duration_s = heading.language, 0.0
        self._id: int | None = None
        self._file: tuple[int, int] | None = None
        self._not_before = 0.0

    @property
    def id(self) -> int | None:
        """The record's, as soon as there is something in it."""
        return self._id

    def add(self, cue: Timed, translation: str | Timed | None = None) -> None:
        """What was said, with what it means where that is known already."""
        if isinstance(translation, str):
            translation = Cue(cue.start, cue.end, translation)
        self.extend((cue,), () if translation is None else (translation,))

    def translate(self, cue: Timed) -> None:
        """What was said from start to end of this cue, in the other language."""
        self.extend((), (cue,))

    def extend(self, cues: Iterable[Timed], translation: Iterable[Timed] = ()) -> None:
        """Many at once, in one transaction. Cues without text are left out."""
        found = [(False, cue) for cue in cues] + [(True, cue) for cue in translation]
        with self._lock:
            if self._store is None:
                return
            for translated, cue in found:
                if cue.text.strip():
                    self._waiting.append(
                        (translated, cue.start, cue.end, strip_surrogates(cue.text))
                    )
                self._duration_s = max(self._duration_s, cue.end)
            if time.monotonic() >= self._not_before:
                self._write()

    def describe(self, *, language: str | None = None, duration_s: float = 0.0) -> None:
        """What has become known meanwhile; written with the next cue, or at the end."""
        with self._lock:
            self._language = language or self._language
            self._duration_s = max(self._duration_s, duration_s)

    def close(self) -> None:
        """Write what is left."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._store is None or (self._id is None and not self._waiting):
            return
        try:
            saved = self._store.run(self._save)
        except OutputError as error:
            self._warn(str(error))
            self._not_before = time.monotonic() + _TRY_AGAIN_S
            return
        if saved is None:  # deleted: it must not come back
            self._store = None
        else:
            self._id, self._file = saved, self._store.identity
        self._waiting.clear()

    def _save(self, db: sqlite3.Connection) -> int | None:
        assert self._store is not None
        record = self._id
        # A file that was moved aside keeps what it has; the session goes on in the new one.
        if record is None or self._file != self._store.identity:
            record = self._begin(db)
        else:
            done = db.execute(
                "UPDATE records SET duration_s = ?, language = ? WHERE id = ?",
                (self._duration_s, self._language, record),
            )
            if not done.rowcount:
                return None
        for translated, start, end, text in self._waiting:
            plain = fold_text(text)
            entry = db.execute(
                "INSERT INTO entries (record, translated, start, end, text, plain, indexed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (record, translated, start, end, text, plain, self._store.indexed),
            ).lastrowid
            if self._store.indexed:
                db.execute("INSERT INTO found (rowid, plain) VALUES (?, ?)", (entry, plain))
        return record

    def _begin(self, db: sqlite3.Connection) -> int | None:
        head, title = self._heading, strip_surrogates(self._heading.title)
        created = (head.created - _EPOCH) // timedelta(microseconds=1)
        return db.execute(
            "INSERT INTO records (owner, kind, title, plain, created, duration_s, language, "
            "target, model) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (head.owner, head.kind, title, fold_text(title), created, self._duration_s,
             self._language, head.target, head.model),
        ).lastrowid  # fmt: skip


def moment(microseconds: int) -> datetime:
    """When a record was made, from the way it is stored."""
    return _EPOCH + timedelta(microseconds=microseconds)
