"""Files that are no history are left as they are; of a damaged one all but a page is kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from edgeapp.history import History
from edgeapp.history.recovery import read_rows
from edgeapp.history.store import SCHEMA
from pipelines.errors import OutputError
from pipelines.subtitles import Cue

PAGE = 4096


def fill(path: Path, records: int = 30, cues: int = 40) -> list[str]:
    """A history of many pages. Returns all texts."""
    texts = []
    with History(path, pytest.fail) as history:
        for record in range(records):
            with history.recording("live", title=f"talk {record}") as journal:
                for cue in range(cues):
                    texts.append(f"Sentence {cue} of talk {record}. " + "Words. " * (cue % 7))
                    journal.add(Cue(cue, cue + 1, texts[-1]))
    return texts


def texts_in(history: History) -> set[str]:
    opened = [history.open(summary.id) for summary in history.list(1000)]
    return {cue.text.strip() for record in opened if record for cue in record.transcript.segments}


def leaf_pages(path: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute(
                "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)
            ).fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no dbstat")
    return [number for (number,) in rows]


def damage(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(os.urandom(PAGE - 1) + b"\xff")


def files_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {p.name: (p.read_bytes(), stat.S_IMODE(p.stat().st_mode)) for p in folder.iterdir()}


# Foreign files


def refused(path: Path, reason: str) -> None:
    """Neither used nor changed, whatever is asked for; a recording goes on without."""
    before = files_in(path.parent) if path.is_file() else {}
    said: list[str] = []
    with History(path, said.append) as history:
        for use in (history.list, history.clear, history.repair, lambda: history.delete(1)):
            with pytest.raises(OutputError, match=reason) as error:
                use()
            assert "\n" not in str(error.value)
        assert history.add_text("Hello.", "") is None
        assert history.add_text("Hello.", "") is None
    assert len(said) == 1, "said once"
    if before:
        assert files_in(path.parent) == before


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"\0", b"SQLite format"])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    path.chmod(0o644)
    refused(path, "notes.txt is no history of edgeapp")


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("application_id", [0, 7])
def test_another_programs_database(tmp_path: Path, journal: str, application_id: int) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode={journal}")
        other.execute(f"PRAGMA application_id={application_id}")
        other.execute("CREATE TABLE theirs (x)")
        other.commit()
    path.chmod(0o644)
    refused(path, "other.db is another program's database")


def test_another_programs_database_with_a_log_of_changes(tmp_path: Path) -> None:
    """Opening it for writing would move the log into the file."""
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=wal")
        other.execute("CREATE TABLE theirs (x)")
        other.execute("INSERT INTO theirs VALUES ('mine')")
        other.commit()
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    killed = tmp_path / "killed" / "other.db"
    before = killed.read_bytes()
    with History(killed, lambda _: None) as history, pytest.raises(OutputError):
        history.list()
    assert killed.read_bytes() == before
    with closing(sqlite3.connect(killed)) as other:
        assert other.execute("SELECT x FROM theirs").fetchall() == [("mine",)]


def test_a_folder_and_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "is a folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is a device or pipe")


def test_an_empty_file_becomes_a_history(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    with History(tmp_path / "new.db", pytest.fail) as history:
        assert history.add_text("Hello.", "")
        assert len(history.list()) == 1


def test_a_new_history_is_known_by_its_header(tmp_path: Path) -> None:
    """Also while its rows are in the write-ahead log only."""
    with History(tmp_path / "a.db", pytest.fail) as history:
        history.add_text("Hello.", "")
        assert (tmp_path / "a.db").read_bytes()[68:72] == b"EDGE"


# Damage


@pytest.mark.slow
@pytest.mark.parametrize("table", ["entries", "records"])
def test_a_damaged_page_costs_that_page(tmp_path: Path, table: str) -> None:
    path = tmp_path / "history.db"
    texts = {text.strip() for text in fill(path)}
    pages = leaf_pages(path, table)
    broken = pages[len(pages) // 2]
    damage(path, broken)
    damaged = path.read_bytes()
    said: list[str] = []
    with History(path, said.append) as history:
        for summary in history.list(1000):
            history.open(summary.id)
        kept = texts_in(history)
    (line,) = said
    assert "history.db was damaged" in line
    assert "kept as history.db.broken-1" in line
    assert (tmp_path / "history.db.broken-1").read_bytes() == damaged
    lost = texts - kept
    assert kept <= texts
    if table == "records":
        assert not lost
    else:
        assert 0 < len(lost) < len(texts) / (len(pages) - 2) * 2
    with History(path, pytest.fail) as history:
        assert history.repair(), "the new file is sound"
        assert history.search("sentence 3")
        assert history.add_text("It goes on.", "")


@pytest.mark.slow
def test_every_page_but_one_survives(tmp_path: Path) -> None:
    """Whichever page is damaged, also one above the leaves or of the schema."""
    path = tmp_path / "history.db"
    texts = {text.strip() for text in fill(path, records=8)}
    sound = path.read_bytes()
    most = 60  # a page holds no more cues
    for page in range(1, len(sound) // PAGE + 1):
        path.write_bytes(sound)
        damage(path, page)
        said: list[str] = []
        with History(path, said.append) as history:
            history.repair()
            kept = texts_in(history)
        assert kept <= texts
        assert len(texts) - len(kept) < most, page
        for rest in tmp_path.glob("history.db*"):
            rest.unlink()
        assert list(tmp_path.iterdir()) == []


def test_long_texts_and_all_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    long = "x" * 3 + "".join(chr(0x4E00 + n) for n in range(20_000)) + "\U0001f600"
    with History(path, pytest.fail) as history:
        history.of("anna").add_text(long, "kurz", title="Ä" * 500, language="zh", target="de")
        history.add_text("short", "", model="demo")
        connection = sqlite3.connect(path)
        with closing(connection):
            records = connection.execute("SELECT * FROM records ORDER BY id").fetchall()
            entries = connection.execute("SELECT * FROM entries ORDER BY id").fetchall()
        rows = read_rows(path)  # while it is open: all of it is in the log
    assert [(i, *values) for i, values in sorted(rows.records.items())] == records
    assert [(i, *values) for i, values in sorted(rows.entries.items())] == entries


def test_deleted_records_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, records=10)
    with History(path, pytest.fail) as history:
        for summary in history.list(5):
            history.delete(summary.id)
        assert len(read_rows(path).records) == 5
        assert len(read_rows(path).entries) == 5 * 40


def test_a_damaged_index_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, records=3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM found_data WHERE id > 100")
        connection.commit()
    with History(path, lambda _: None) as history:
        assert not history.repair()
        assert len(history.search("sentence 3")) == 3
        assert history.repair()
    assert [p.name for p in tmp_path.iterdir()] == ["history.db"]


def test_a_sound_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path, records=3)
    before = path.read_bytes()
    with History(path, pytest.fail) as history:
        assert history.repair()
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_session_goes_on_in_the_repaired_file(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    fill(path)
    history = History(path, lambda _: None)
    with history.recording("live", title="now") as journal:
        journal.add(Cue(0, 1, "First."))
        history.close()
        damage(path, leaf_pages(path, "entries")[3])
        assert not history.repair()
        journal.add(Cue(1, 2, "Second."))
    assert {"First.", "Second."} <= texts_in(history)
    history.close()


def test_a_history_that_an_earlier_version_did_not_finish_is_known(tmp_path: Path) -> None:
    """It used the write-ahead log before it wrote the header."""
    (tmp_path / "live").mkdir()
    path = tmp_path / "live" / "history.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("BEGIN")
        SCHEMA.migrate(connection)
        connection.execute("COMMIT")
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    killed = tmp_path / "killed" / "history.db"
    assert killed.read_bytes()[68:72] != b"EDGE"
    with History(killed, pytest.fail) as history:
        assert history.add_text("Hello.", "")


@pytest.mark.parametrize("stored", [2**62, -(2**62), "yesterday"])
def test_a_damaged_time_costs_only_the_time(tmp_path: Path, stored: object) -> None:
    path = tmp_path / "history.db"
    with History(path) as history:
        record = history.add_text("Good morning.", "Guten Morgen!")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET created = ?", (stored,))
    with History(path, pytest.fail) as history:
        (summary,) = history.list(10)
        assert summary.created.year == 1970
        assert history.open(record) is not None
