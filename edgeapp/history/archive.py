"""The history: records live sessions, files and texts; lists, searches, opens, deletes them.

All data stays on this machine, in one SQLite file that only its owner can read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from edgeapp.console import print_note
from edgeapp.history.corrections import Splice, rewrite, spliced, stored_rows
from edgeapp.history.journal import Heading, Journal, Kind, to_microseconds
from edgeapp.history.records import Record, Summary, to_record, to_summary
from edgeapp.history.sounds import DEFAULT_QUOTA_MB, SoundFolder
from edgeapp.history.store import Store
from edgeapp.history.text_folding import fold_text, strip_surrogates
from pipelines import OutputError
from pipelines.subtitles import Cue

__all__ = ["History"]

# The first 200 characters of the first four entries.
_OPENING = """(SELECT group_concat(text, ' ') FROM (SELECT substr(text, 1, 200) AS text
    FROM entries WHERE record = records.id ORDER BY translated, id LIMIT 4))"""
# The first entry with the word searched for.
_MATCH = """(SELECT text FROM entries WHERE record = records.id AND instr(plain, ?)
    ORDER BY id LIMIT 1)"""
_SUMMARY = """SELECT id, kind, title, created, duration_s, language, target, model,
    sound IS NOT NULL,"""
# A record of this person that is not in the trash.
_MINE = "id = ? AND owner = ? AND deleted IS NULL"
_MB = 1 << 20

# Conditions for a word of a search: it must be in the title or in a cue of the record.
_HAS = "(instr(plain, ?) OR id IN (SELECT record FROM entries WHERE instr(plain, ?)))"
_HAS_INDEXED = """(instr(plain, ?) OR id IN (SELECT record FROM entries
    WHERE id IN (SELECT rowid FROM found WHERE found MATCH ?)))"""


class History:
    """The history of one person. Thread-safe; several processes may use the same file.

    Recording never raises: the first failure to write is reported through `warn`. All other
    methods raise OutputError if the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None,
        warn: Callable[[str], None] = print_note,
        sound_mb: int = DEFAULT_QUOTA_MB,
    ) -> None:
        """
        Args:
            path: the file, created on first use; None disables the history: records are
                discarded, lists are empty.
            warn: called with messages for the user.
            sound_mb: the most that recordings of records may take, in MiB. Beyond it, the oldest
                recordings are deleted; 0 keeps none. They lie in a folder beside the file.
        """
        self._store = None if path is None else Store(path, warn)
        folder = Path() if path is None else path.with_name(f"{path.stem}-sounds")
        self._sounds = SoundFolder(folder, sound_mb * _MB)
        self._warn, self._warned = warn, False
        self._owner = ""

    def of(self, owner: str) -> History:
        """Return the history of another person ("" without logins), in the same file. It shows
        only that person's records."""
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
        background: bool = False,
    ) -> Iterator[Journal]:
        """Open a journal that writes a record while it grows.

        Everything added survives kill -9; in the `background`, where adding a cue never waits for
        the file, once it is written, which begins at once. Without any text added, no record is
        created. The other arguments are those of Heading.
        """
        heading = Heading(self._owner, kind, title, language, target, model, datetime.now(UTC))
        journal = Journal(self._store, heading, self._warn_once, background=background)
        try:
            yield journal
        finally:
            journal.close()

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
        """Add a text and its translation; return the id of the record, None if it was not
        written."""
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
        conditions, values = ["owner = ?", "deleted IS NULL"], [*words[:1], self._owner]
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
            summary = f"{_SUMMARY} {_OPENING}, NULL FROM records WHERE {_MINE}"
            cues = (
                "SELECT translated, start, end, text, words, speaker FROM entries WHERE record = ? "
                "ORDER BY id"
            )
            row = db.execute(summary, (record, self._owner)).fetchone()
            return row, [] if row is None else db.execute(cues, (record,)).fetchall()

        if self._store is None:
            return None
        row, entries = self._store.run(work, writes=False)
        return None if row is None else to_record(to_summary(row, ""), entries)

    def rename(self, record: int, title: str) -> bool:
        """Set a record's title ("" shows the beginning of its text); return whether it exists."""
        title = strip_surrogates(title)
        return self._change(
            f"UPDATE records SET title = ?, plain = ? WHERE {_MINE}",
            title, fold_text(title), record, self._owner,
        )  # fmt: skip

    def splice(
        self, record: int, counts: Sequence[int] | None, splices: Sequence[Splice]
    ) -> Record | bool:
        """Replace some cues of a record.

        Args:
            record: its id.
            counts: the numbers of its cues and of those of its translation, as the caller knows
                them; None if it does not.
            splices: what is replaced, one after the other.

        Returns:
            True: it is done. False: the record does not exist. The record as it is: it has other
            numbers of cues, and was not changed.
        """
        if self._store is None:
            return False

        def work(db: sqlite3.Connection) -> bool | None:
            found = db.execute(
                f"SELECT 1 FROM records WHERE {_MINE}", (record, self._owner)
            ).fetchone()
            if found is None:
                return False
            parts = stored_rows(db, record)
            if counts is None or list(counts) != [len(rows) for rows in parts]:
                return None
            for translated, rows in enumerate(parts):
                entries = spliced(rows, splices, translated=bool(translated))
                rewrite(db, record, rows, entries)
            return True

        done = self._store.run(work)
        return (self.open(record) or False) if done is None else done

    def delete(self, record: int) -> bool:
        """Delete a record and its sound, and overwrite its text in the file; return whether it
        existed."""
        return self._delete("WHERE id = ? AND owner = ?", record, self._owner)

    def discard(self, record: int | None) -> tuple[int, ...]:
        """Put a record, or with None all of this person, into the trash; return their ids.

        They are not shown any more, and can be restored.
        """
        now = to_microseconds(datetime.now(UTC))
        chosen, values = ("", ()) if record is None else (" AND id = ?", (record,))

        def work(db: sqlite3.Connection) -> tuple[int, ...]:
            rows = db.execute(
                "UPDATE records SET deleted = ? WHERE owner = ? AND deleted IS NULL"
                f"{chosen} RETURNING id",
                (now, self._owner, *values),
            )
            return tuple(sorted(row[0] for row in rows))

        return () if self._store is None else self._store.run(work)

    def restore(self, records: Sequence[int]) -> int:
        """Take records out of the trash; return how many were still there."""
        if self._store is None:
            return 0

        def work(db: sqlite3.Connection) -> int:
            change = "UPDATE records SET deleted = NULL WHERE id = ? AND owner = ?"
            values = [(record, self._owner) for record in records]
            return sum(db.execute(change, each).rowcount for each in values)

        return self._store.run(work)

    def empty_trash(self, older_than_s: float = 0.0) -> None:
        """Delete what has been in the trash for some seconds, of all persons."""
        if self._store is None:
            return
        before = to_microseconds(datetime.now(UTC) - timedelta(seconds=older_than_s))
        waiting = "SELECT EXISTS (SELECT 1 FROM records WHERE deleted <= ?)"
        if self._store.run(lambda db: db.execute(waiting, (before,)).fetchone()[0], writes=False):
            self._delete("WHERE deleted <= ?", before)

    def empty_trash_soon(self, older_than_s: float) -> None:
        """As `empty_trash`, in another thread, for which `close` waits."""
        if self._store is not None:
            self._store.in_background(lambda: self.empty_trash(older_than_s))

    def keep_sound(self, record: int, recording: Path, suffix: str = "") -> bool:
        """Move a recording into the history, to be played with its record.

        If all recordings together exceed the quota, the oldest ones are deleted. The suffix, such
        as ".flac", tells a browser the format.

        Returns:
            Whether it was kept: it fits into the quota, and the record exists.
        """
        if self._store is None:
            return False
        try:
            name = self._sounds.store(recording, suffix)
        except OSError as error:
            self._warn_once(f"the recording cannot be kept in {self._sounds.path}: {error}")
            return False
        if name is None:
            return False

        def work(db: sqlite3.Connection) -> tuple[bool, list[str], list[str]]:
            (old,) = db.execute("SELECT max(sound) FROM records WHERE id = ?", (record,)).fetchone()
            change = f"UPDATE records SET sound = ? WHERE {_MINE}"
            kept = db.execute(change, (name, record, self._owner)).rowcount > 0
            rows = db.execute("SELECT sound FROM records WHERE sound IS NOT NULL ORDER BY id")
            names = [row[0] for row in rows]
            over = list(self._sounds.over_quota(names))
            for each in over:
                db.execute("UPDATE records SET sound = NULL WHERE sound = ?", (each,))
            return kept, names, [*over, *([] if kept else [name]), *([old] if kept and old else [])]

        try:
            kept, names, removed = self._store.run(work)
        except OutputError as error:
            self._sounds.remove((name,))
            self._warn_once(str(error))
            return False
        self._sounds.remove(removed)
        if not self._store.set_aside():  # Its records have sounds, too.
            self._sounds.remove_others(names)
        return kept

    def sound(self, record: int) -> Path | None:
        """The recording of a record; None if it has none (any more)."""
        if self._store is None:
            return None
        query = f"SELECT sound FROM records WHERE {_MINE}"
        row = self._store.run(
            lambda db: db.execute(query, (record, self._owner)).fetchone(), writes=False
        )
        return None if row is None or row[0] is None else self._sounds.find(row[0])

    def delete_sound(self, record: int) -> bool:
        """Delete the recording of a record, but not its text; return whether it had one."""
        path = self.sound(record)
        if path is None:
            return False
        self._change(f"UPDATE records SET sound = NULL WHERE {_MINE}", record, self._owner)
        self._sounds.remove((path.name,))
        return True

    def repair(self) -> bool:
        """Check the whole file, and repair what is damaged; return whether it was sound."""
        return self._store is None or self._store.check()

    def clear(self) -> None:
        """Delete all records of this person, and their sounds."""
        self._delete("WHERE owner = ?", self._owner)

    def _delete(self, where: str, *values: int | str) -> bool:
        if self._store is None:
            return False
        store = self._store
        chosen = store.run(
            lambda db: db.execute(f"SELECT id, sound FROM records {where}", values).fetchall(),
            writes=False,
        )

        def delete(db: sqlite3.Connection, record: int) -> int:
            gone = db.execute(f"DELETE FROM records {where} AND id = ?", (*values, record))
            return gone.rowcount

        # One after the other, so that cues of others are written between.
        deleted = [row for row in chosen if store.run(partial(delete, record=row[0]))]
        store.wipe()
        self._sounds.remove([sound for _, sound in deleted if sound is not None])
        return bool(deleted)

    def _change(self, statement: str, *values: object) -> bool:
        if self._store is None:
            return False
        return self._store.run(lambda db: db.execute(statement, values).rowcount) > 0

    def _warn_once(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(message)
