"""Histories of earlier versions are migrated, newer ones refused, and sounds are kept."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from edgeapp.history import History, store
from edgeapp.history.recovery import read_rows
from pipelines import OutputError
from pipelines.subtitles import Cue
from tests.edgeapp.history.records import replace_text

# The tables as each earlier `user_version` has left them, and the index of all three.
_TABLES = {
    1: """
CREATE TABLE records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL,
    title TEXT NOT NULL, plain TEXT NOT NULL, created INTEGER NOT NULL,
    duration_s REAL NOT NULL, language TEXT, target TEXT, model TEXT);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    record INTEGER NOT NULL REFERENCES records ON DELETE CASCADE,
    translated INTEGER NOT NULL, start REAL, end REAL, text TEXT NOT NULL,
    plain TEXT NOT NULL, indexed INTEGER NOT NULL);
CREATE INDEX entries_of_record ON entries (record);
CREATE INDEX entries_not_indexed ON entries (id) WHERE NOT indexed;
""",
    2: """
ALTER TABLE records ADD COLUMN sound TEXT;
ALTER TABLE records ADD COLUMN deleted INTEGER;
ALTER TABLE entries ADD COLUMN words TEXT;
""",
    3: "ALTER TABLE entries ADD COLUMN speaker TEXT;",
}
_INDEX = """
CREATE VIRTUAL TABLE found USING fts5 (
    plain, content='entries', content_rowid='id', tokenize='trigram');
"""
_ROWS = """
INSERT INTO records (owner, kind, title, plain, created, duration_s, language, target)
VALUES ('', 'live', 'Tuesday', 'tuesday', 5, 2.0, 'en', 'de'),
       ('anna', 'text', '', '', 6, 0.0, 'en', 'de');
INSERT INTO entries (record, translated, start, end, text, plain, indexed)
VALUES (1, 0, 0.0, 1.0, 'Hello.', 'hello.', 1), (1, 1, 0.0, 1.0, 'Hallo.', 'hallo.', 1),
       (2, 0, 0.0, 0.0, 'Written without an index.', 'written without an index.', 0);
INSERT INTO found (rowid, plain) SELECT id, plain FROM entries WHERE indexed;
"""


def earlier(path: Path, version: int) -> None:
    """A history as an earlier version has left it."""
    with closing(sqlite3.connect(path)) as old:
        for number in range(1, min(version, 3) + 1):
            old.executescript(_TABLES[number])
        old.executescript(f"{_INDEX} {_ROWS}")
        if version > 1:
            sounds = path.with_name("history-sounds")
            sounds.mkdir()
            (sounds / "talk.flac").write_bytes(b"sound")
            old.execute("UPDATE records SET sound = 'talk.flac' WHERE id = 1")
        old.execute(f"PRAGMA application_id={0x45444745}")
        old.execute(f"PRAGMA user_version={version}")
        old.execute("PRAGMA journal_mode=WAL")
        old.commit()
    path.chmod(0o600)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_history_of_an_earlier_version_is_migrated(tmp_path: Path, version: int) -> None:
    path, copy = tmp_path / "history.db", tmp_path / f"history.db.version-{version}"
    earlier(path, version)
    assert len(read_rows(path).entries) == 3, "its rows can be recovered"
    with History(path, pytest.fail) as history:
        (summary,) = history.search("hello hallo")
        record = history.open(summary.id)
        assert record is not None
        assert (record.title, record.text, record.translation) == ("Tuesday", "Hello.", "Hallo.")
        sound = history.sound(1)
        assert (sound is not None and sound.read_bytes() == b"sound") == (version > 1)
        (other,) = history.of("anna").search("without")
        assert other.id == 2
        assert version_of(copy) == version, "it is kept until something was written"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with History(path, pytest.fail) as history:
        assert copy.exists()
        assert replace_text(history, 1, (Cue(0.0, 1.0, " Good evening."),))
        assert not history.search("hello"), "the index follows the text"
        assert [one.id for one in history.search("evening")] == [1]
        assert history.add_text("New.", "")
        assert not copy.exists()
        assert history.repair()


@pytest.mark.parametrize("fails", [False, True])
def test_deleted_text_is_deleted_from_the_copy_too(
    tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge(_: store.Store) -> None:
        raise OutputError("the disk is full")

    if fails:
        monkeypatch.setattr(store.Store, "_merge_index", merge)
    earlier(tmp_path / "history.db", 3)
    with History(tmp_path / "history.db", pytest.fail) as history:
        assert history.delete(1)
    pattern = "history.db.version-*" if fails else "history.db*"
    assert not any(b"Hello" in path.read_bytes() for path in tmp_path.glob(pattern))


def test_a_newer_history_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    earlier(path, 99)
    before = path.read_bytes()
    with History(path, lambda _: None) as history:
        with pytest.raises(OutputError, match=r"history\.db was written by a newer edgeapp: "):
            history.list()
        assert history.add_text("Hello.", "") is None
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["history-sounds", "history.db"]


def test_a_sqlite_without_the_index_leaves_it_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.db"
    with History(path, pytest.fail) as history:
        history.add_text("Good morning.", "")
    monkeypatch.setattr(store, "_has_trigrams", lambda: False)
    with History(path, pytest.fail) as history:
        history.add_text("Good evening.", "")
        assert len(history.search("good")) == 2
    monkeypatch.undo()
    with History(path, pytest.fail) as history:
        assert len(history.search("good")) == 2
        assert history.repair()


def test_sounds_of_a_damaged_history_are_kept(tmp_path: Path) -> None:
    """A record that could not be read had one, perhaps; it is in the file that was set aside."""
    earlier(tmp_path / "history.db", 2)
    sound = tmp_path / "history-sounds" / "talk.flac"
    os.utime(sound, (0, 0))
    with (tmp_path / "history.db").open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(1000))
        file.truncate(3 * 4096)
    said: list[str] = []
    with History(tmp_path / "history.db", said.append) as history:
        kept = history.add_text("New.", "")
        (tmp_path / "new.flac").write_bytes(b"new")
        assert history.keep_sound(kept or 0, tmp_path / "new.flac", ".flac")
    (line,) = said
    assert line.endswith("the damaged file is kept as history.db.broken-1")
    assert sound.read_bytes() == b"sound"
