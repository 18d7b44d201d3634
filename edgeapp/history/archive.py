"""The history: records live sessions, files and texts; lists, searches, opens, deletes them.

All data stays on this machine, in one SQLite file that only its owner can read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeapp.console import print_note
from edgeapp.history.journal import Heading, Journal, Kind, insert_entry
from edgeapp.history.records import Record, Summary, to_record, to_summary
from edgeapp.history.store import Store
from edgeapp.history.text_folding import fold_text, strip_surrogates
from edgeapp.subtitles.formats import Cue, Timed, Transcript

__all__ = ["History"]

# The first 200 characters of the first four entries.
_OPENING = """(SELECT group_concat(text, ' ') FROM (SELECT substr(text, 1, 200) AS text
    FROM entries WHERE record = records.id ORDER BY translated, id LIMIT 4))"""
# The first entry with the word searched for.
_MATCH = """(SELECT text FROM entries WHERE record = records.id AND instr(plain, ?)
    ORDER BY id LIMIT 1)"""
_SUMMARY = "SELECT id, kind, title, created, duration_s, language, target, model,"

# Conditions for a word of a search: it must be in the title or in a cue of the record.
_HAS = "(instr(plain, ?) OR id IN (SELECT record FROM entries WHERE instr(plain, ?)))"
_HAS_INDEXED = """(instr(plain, ?) OR id IN (SELECT record FROM entries
    WHERE id IN (SELECT rowid FROM found WHERE found MATCH ?)))"""


class History:
    """The history of one person. Thread-safe; several processes may use the same file.

    Recording never raises: the first failure to write is reported through `warn`. All other
    methods raise OutputError if the file cannot be used.
    """

    def __init__(self, path: Path | None, warn: Callable[[str], None] = print_note) -> None:
        """
        Args:
            path: the file, created on first use; None disables the history: records are
                discarded, lists are empty.
            warn: called with messages for the user.
        """
        self._store = None if path is None else Store(path, warn)
        self._warn, self._warned = warn, False
        self._owner = ""

    def of(self, owner: str) -> History:
        """The history of another person, in the same file. It shows only that person's records.

        Args:
            owner: the person's name; "" without logins.
        """
        history = copy(self)
        history._owner = owner
        return history

    @property
    def on(self) -> bool:
        """Whether the history is enabled."""
        return self._store is not None

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._store is not None:
            self._store.close()

    @contextmanager
    def recording(
        self,
        kind: Kind = "live",
        *,
        title: str = "",
        language: str | None = None,
        target: str | None = None,
        model: str | None = None,
    ) -> Iterator[Journal]:
        """A journal that writes a record while it grows.

        Everything added survives kill -9. Without any text added, no record is created.

        Args:
            kind: of the record.
            title: "": the beginning of the text is shown.
            language: code of the source language, if known.
            target: code of the language translated into.
            model: name of the model.
        """
        heading = Heading(self._owner, kind, title, language, target, model, datetime.now(UTC))
        journal = Journal(self._store, heading, self._warn_once)
        try:
            yield journal
        finally:
            journal.close()

    def add_file(
        self, transcript: Transcript, *, title: str, duration_s: float, model: str | None = None
    ) -> int | None:
        """Add the transcript of a recording.

        Returns:
            The id of the record; None if it was not written.
        """
        with self.recording(
            "file",
            title=title,
            language=transcript.language,
            target=transcript.translation_language,
            model=model,
        ) as journal:
            journal.describe(duration_s=duration_s)
            journal.extend(transcript.segments, transcript.translation)
        return journal.id

    def add_text(
        self,
        text: str,
        translation: str,
        *,
        title: str = "",
        language: str | None = None,
        target: str | None = None,
        model: str | None = None,
    ) -> int | None:
        """Add a text and its translation.

        Returns:
            The id of the record; None if it was not written.
        """
        with self.recording(
            "text", title=title, language=language, target=target, model=model
        ) as journal:
            journal.add(Cue(0.0, 0.0, text), translation)
        return journal.id

    def list(self, limit: int = 50, offset: int = 0) -> tuple[Summary, ...]:
        """The records from `offset` on, at most `limit`, newest first."""
        return self.search("", limit, offset)

    def search(self, text: str, limit: int = 50, offset: int = 0) -> tuple[Summary, ...]:
        """Records whose title, text or translation contain every word of `text`, newest first.

        Parts of words match; case and diacritics are ignored.
        """
        if self._store is None:
            return ()
        words = fold_text(strip_surrogates(text)).split()
        conditions, values = ["owner = ?"], [*words[:1], self._owner]
        for word in words:
            # A trigram index cannot find shorter words.
            indexed = self._store.indexed and len(word) >= 3
            conditions.append(_HAS_INDEXED if indexed else _HAS)
            values += [word, '"' + word.replace('"', '""') + '"' if indexed else word]
        query = (
            f"{_SUMMARY} {_OPENING}, {_MATCH if words else 'NULL'} FROM records "
            f"WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ? OFFSET ?"
        )
        rows = self._store.run(
            lambda db: db.execute(query, (*values, limit, offset)).fetchall(), writes=False
        )
        return tuple(to_summary(row, words[0] if words else "") for row in rows)

    def open(self, record: int) -> Record | None:
        """A complete record; None if it does not exist (any more)."""

        def work(db: sqlite3.Connection) -> tuple[Sequence[Any] | None, Sequence[Any]]:
            summary = f"{_SUMMARY} {_OPENING}, NULL FROM records WHERE id = ? AND owner = ?"
            cues = "SELECT translated, start, end, text FROM entries WHERE record = ? ORDER BY id"
            row = db.execute(summary, (record, self._owner)).fetchone()
            return row, [] if row is None else db.execute(cues, (record,)).fetchall()

        if self._store is None:
            return None
        row, entries = self._store.run(work, writes=False)
        return None if row is None else to_record(to_summary(row, ""), entries)

    def rename(self, record: int, title: str) -> bool:
        """Set a record's title; "": the beginning of its text is shown.

        Returns:
            Whether the record exists.
        """
        title = strip_surrogates(title)
        return self._change(
            "UPDATE records SET title = ?, plain = ? WHERE id = ? AND owner = ?",
            title, fold_text(title), record, self._owner,
        )  # fmt: skip

    def edit(self, record: int, cues: Sequence[Timed], translation: Sequence[Timed] = ()) -> bool:
        """Replace all of a record's text.

        Args:
            record: its id.
            cues: of the text. Cues without text are left out.
            translation: cues of the translation.

        Returns:
            Whether the record exists.
        """
        if self._store is None:
            return False
        store = self._store
        rows = [(False, cue) for cue in cues] + [(True, cue) for cue in translation]

        def work(db: sqlite3.Connection) -> bool:
            found = db.execute(
                "SELECT 1 FROM records WHERE id = ? AND owner = ?", (record, self._owner)
            ).fetchone()
            if found is None:
                return False
            if store.indexed:
                db.execute(
                    "INSERT INTO found (found, rowid, plain) SELECT 'delete', id, plain "
                    "FROM entries WHERE record = ?",
                    (record,),
                )
            db.execute("DELETE FROM entries WHERE record = ?", (record,))
            for translated, cue in rows:
                if cue.text.strip():
                    text = strip_surrogates(cue.text)
                    entry = (translated, cue.start, cue.end, text)
                    insert_entry(db, record, entry, indexed=store.indexed)
            return True

        return store.run(work)

    def delete(self, record: int) -> bool:
        """Delete a record; its text is overwritten in the file.

        Returns:
            Whether the record existed.
        """
        return self._delete("WHERE id = ? AND owner = ?", record, self._owner)

    def repair(self) -> bool:
        """Check the whole file. What is damaged is repaired, and `warn` is told.

        Returns:
            Whether the file was sound.
        """
        return self._store is None or self._store.check()

    def clear(self) -> None:
        """Delete all records of this person."""
        self._delete("WHERE owner = ?", self._owner)

    def _delete(self, where: str, *values: int | str) -> bool:
        if self._store is None:
            return False
        indexed = self._store.indexed

        def work(db: sqlite3.Connection) -> int:
            if indexed:
                db.execute(
                    "INSERT INTO found (found, rowid, plain) SELECT 'delete', id, plain "
                    f"FROM entries WHERE record IN (SELECT id FROM records {where})",
                    values,
                )
                # The index keeps deleted text until its segments are merged.
                db.execute("INSERT INTO found (found) VALUES ('optimize')")
            return db.execute(f"DELETE FROM records {where}", values).rowcount

        deleted = self._store.run(work) > 0
        self._store.wipe()
        return deleted

    def _change(self, statement: str, *values: object) -> bool:
        if self._store is None:
            return False
        return self._store.run(lambda db: db.execute(statement, values).rowcount) > 0

    def _warn_once(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(message)
