"""Past live sessions and jobs: kept as they happen, listed, searched, opened, deleted.

Nothing leaves this machine: it is one SQLite file that only its owner may read.
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
from edgeapp.history.journal import Heading, Journal, Kind
from edgeapp.history.records import Record, Summary, record_of, summary_of
from edgeapp.history.store import Store
from edgeapp.history.text_folding import fold_text, strip_surrogates
from edgeapp.subtitles.formats import Cue, Transcript

__all__ = ["History"]

_OPENING = """(SELECT group_concat(text, ' ') FROM (SELECT substr(text, 1, 200) AS text
    FROM entries WHERE record = records.id ORDER BY translated, id LIMIT 4))"""
_FOUND = """(SELECT text FROM entries WHERE record = records.id AND instr(plain, ?)
    ORDER BY id LIMIT 1)"""
_SUMMARY = "SELECT id, kind, title, created, duration_s, language, target, model,"

# What a word of a search must be in: the title, or any cue of the record.
_HAS = "(instr(plain, ?) OR id IN (SELECT record FROM entries WHERE instr(plain, ?)))"
_HAS_INDEXED = """(instr(plain, ?) OR id IN (SELECT record FROM entries
    WHERE id IN (SELECT rowid FROM found WHERE found MATCH ?)))"""


class History:
    """What was done with this app. path: None switches it off; then nothing is read or written.

    For any number of threads; other processes may use the same file. Recording never raises:
    what cannot be kept is said once, through `warn`, and the work goes on. The rest raises
    OutputError when the file cannot be used.
    """

    def __init__(self, path: Path | None, warn: Callable[[str], None] = print_note) -> None:
        self._store = None if path is None else Store(path, warn)
        self._warn, self._said = warn, False
        self._owner = ""

    def of(self, owner: str) -> History:
        """The history of one person, in the same file; others' records are not there."""
        theirs = copy(self)
        theirs._owner = owner
        return theirs

    @property
    def on(self) -> bool:
        """Whether anything is kept."""
        return self._store is not None

    def __enter__(self) -> History:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
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
        """A journal of what is going on: after kill -9 everything that it took is there.

        Where nothing is ever added, there is no record.
        """
        heading = Heading(self._owner, kind, title, language, target, model, datetime.now(UTC))
        journal = Journal(self._store, heading, self._say_once)
        try:
            yield journal
        finally:
            journal.close()

    def add_file(
        self, transcript: Transcript, *, title: str, duration_s: float, model: str | None = None
    ) -> int | None:
        """Keep what a recording said. Its id; None where nothing was kept."""
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
        """Keep a text and its translation. Its id; None where nothing was kept."""
        with self.recording(
            "text", title=title, language=language, target=target, model=model
        ) as journal:
            journal.add(Cue(0.0, 0.0, text), translation)
        return journal.id

    def list(self, limit: int = 50, offset: int = 0) -> tuple[Summary, ...]:
        """Some of the records, newest first."""
        return self.search("", limit, offset)

    def search(self, text: str, limit: int = 50, offset: int = 0) -> tuple[Summary, ...]:
        """Records with every word of `text`, or it as a part of a word, in their title, text or
        translation, newest first. Upper case and diacritics make no difference.
        """
        if self._store is None:
            return ()
        words = fold_text(strip_surrogates(text)).split()
        conditions, values = ["owner = ?"], [*words[:1], self._owner]
        for word in words:
            # Trigrams cannot find what is shorter.
            indexed = self._store.indexed and len(word) >= 3
            conditions.append(_HAS_INDEXED if indexed else _HAS)
            values += [word, '"' + word.replace('"', '""') + '"' if indexed else word]
        query = (
            f"{_SUMMARY} {_OPENING}, {_FOUND if words else 'NULL'} FROM records "
            f"WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ? OFFSET ?"
        )
        rows = self._store.run(
            lambda db: db.execute(query, (*values, limit, offset)).fetchall(), writes=False
        )
        return tuple(summary_of(row, words[0] if words else "") for row in rows)

    def open(self, record: int) -> Record | None:
        """All of one; None where it is not there (any more)."""

        def work(db: sqlite3.Connection) -> tuple[Sequence[Any] | None, Sequence[Any]]:
            head = f"{_SUMMARY} {_OPENING}, NULL FROM records WHERE id = ? AND owner = ?"
            cues = "SELECT translated, start, end, text FROM entries WHERE record = ? ORDER BY id"
            row = db.execute(head, (record, self._owner)).fetchone()
            return row, [] if row is None else db.execute(cues, (record,)).fetchall()

        if self._store is None:
            return None
        row, entries = self._store.run(work, writes=False)
        return None if row is None else record_of(summary_of(row, ""), entries)

    def rename(self, record: int, title: str) -> bool:
        """Give it a title, "" for the words that it begins with. False: it is not there."""
        title = strip_surrogates(title)
        return self._change(
            "UPDATE records SET title = ?, plain = ? WHERE id = ? AND owner = ?",
            title, fold_text(title), record, self._owner,
        )  # fmt: skip

    def delete(self, record: int) -> bool:
        """Delete one for good: its text is overwritten in the file. False: it is not there."""
        return self._delete("WHERE id = ? AND owner = ?", record, self._owner)

    def clear(self) -> None:
        """Delete all of this person's."""
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
                # Until its parts are merged, the index remembers what was deleted.
                db.execute("INSERT INTO found (found) VALUES ('optimize')")
            return db.execute(f"DELETE FROM records {where}", values).rowcount

        deleted = self._store.run(work) > 0
        self._store.wipe()
        return deleted

    def _change(self, statement: str, *values: object) -> bool:
        if self._store is None:
            return False
        return self._store.run(lambda db: db.execute(statement, values).rowcount) > 0

    def _say_once(self, message: str) -> None:
        if not self._said:
            self._said = True
            self._warn(message)
