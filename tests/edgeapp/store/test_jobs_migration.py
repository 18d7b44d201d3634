"""A journal that did not record its version: what is done is skipped, and the rest goes on."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgeapp.batch.journal.job_journal import JobJournal, State
from edgeapp.batch.journal.pieces import LinesPiece
from edgeapp.cli import app
from pipelines import OutputError
from pipelines.hub import bundled_folder

_TABLES = """
CREATE TABLE jobs (
    key TEXT PRIMARY KEY, verb TEXT, input TEXT, model TEXT, state TEXT, started REAL,
    finished REAL, audio_s REAL, worked_s REAL, message TEXT, outputs TEXT DEFAULT '{}',
    lines INTEGER, choices TEXT DEFAULT '{}'
);
CREATE TABLE pieces (
    key TEXT REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER, content TEXT,
    PRIMARY KEY (key, number)
) WITHOUT ROWID;
CREATE TABLE files (
    path TEXT, digest TEXT, written REAL, PRIMARY KEY (path, digest)
) WITHOUT ROWID;
"""
# The tables before jobs had lines and choices, and files were known.
_FIRST_TABLES = """
CREATE TABLE jobs (
    key TEXT PRIMARY KEY, verb TEXT, input TEXT, model TEXT, state TEXT, started REAL,
    finished REAL, audio_s REAL, worked_s REAL, message TEXT, outputs TEXT DEFAULT '{}'
);
"""
_JOB = (
    "INSERT INTO jobs (key, verb, input, model, state, started, finished, audio_s, worked_s, "
    "message, outputs) VALUES (?, 'translate', ?, 'demo-en-de', ?, ?, ?, NULL, 2.0, ?, ?)"
)
_CONFIG = """
translation_model = "demo-en-de"
device = "cpu"
compute_type = "int8"
threads = 1
trusted_proxy = "10.0.0.1"
history = true
history_sound_mb = 2000
"""
_TEXT = "Good morning.\nWhere is the station?\nI am tired.\n"


def key_of(source: Path) -> str:
    """The key of a job, as it was computed then."""
    settings = {
        "split_sentences": True,
        "word_alignments": False,
        "document": False,
        "format": "text",
        "model": str(bundled_folder("demo-en-de")),
        "compute_type": "int8",
        "shortlist": False,
        "source_language": None,
        "target": None,
        "beam_size": 1,
    }
    content = json.dumps(settings, sort_keys=True).encode() + source.read_bytes()
    return hashlib.sha256(content).hexdigest()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with 50 jobs that are done, one half done, and one that has failed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data" / "edgeapp" / "jobs.db"
    for folder in (path.parent, tmp_path / "config" / "edgeapp", tmp_path / "in", tmp_path / "out"):
        folder.mkdir(parents=True)
    (tmp_path / "config" / "edgeapp" / "config.toml").write_text(_CONFIG)
    now = time.time()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_TABLES)
        for number in range(50):
            source, result = Path(f"in/done{number}.txt"), tmp_path / "out" / f"done{number}.de.txt"
            source.write_text(f"Number {number}.\n")
            result.write_text("Done then.\n")
            outputs = json.dumps({str(result): "lines"})
            db.execute(_JOB, (key_of(source), str(source), "done", now, now, "", outputs))
            db.execute("INSERT INTO files VALUES (?, ?, ?)", (str(result), sha256(result), now))
        for name, state in (("half", "running"), ("failed", "failed")):
            source = Path(f"in/{name}.txt")
            source.write_text(f"{name}\n{_TEXT}")
            message = "no space" if state == "failed" else ""
            db.execute(_JOB, (key_of(source), str(source), state, now, None, message, "{}"))
        piece = json.dumps({"lines": ["Kept then.\n"], "failed": 0})
        db.execute("INSERT INTO pieces VALUES (?, 0, ?)", (key_of(Path("in/half.txt")), piece))
        db.commit()
    return path


def translate(*more: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["translate", "in", "-o", "out/", *more])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_jobs_of_an_earlier_version_are_known(journal: Path, tmp_path: Path) -> None:
    copy = journal.with_name("jobs.db.version-0")
    _, planned, _ = translate("--dry-run")
    assert Counter(line.split(": ")[-1] for line in planned.splitlines()) == {
        "done already": 50,
        "go on where an earlier run stopped": 1,
        "try again, it has failed": 1,
    }
    assert copy.exists(), "until a job is done"
    code, _, err = translate()
    assert code == 0
    assert err.count("done already") == 50
    assert "in/half.txt: resuming after 1 translated line" in err
    half, failed = (
        (tmp_path / "out" / f"{name}.de.txt").read_text() for name in ("half", "failed")
    )
    assert half.startswith("Kept then.\n")
    assert half.splitlines()[1:] == failed.splitlines()[1:]
    assert not copy.exists()
    listed = CliRunner().invoke(app, ["jobs", "--json"]).stdout.splitlines()
    assert sum(json.loads(line)["outputs"] != {} for line in listed) == 52
    assert translate()[2].count("done already") == 52


def test_the_first_journals_are_read_on(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as first:
        first.executescript(_FIRST_TABLES)
        for key, outputs in (("a", '{"/out/a": "plain"}'), ("b", '{"/out/a": "new"}'), ("c", "{")):
            first.execute(_JOB, (key, f"{key}.txt", "done", time.time(), time.time(), "", outputs))
        first.commit()
    for _ in range(2):
        with JobJournal(path, pytest.fail) as journal:
            records = journal.records()
        with (
            closing(sqlite3.connect(path)) as earlier,
            pytest.raises(sqlite3.OperationalError, match="no such column: outputs"),
        ):
            earlier.execute("SELECT outputs FROM jobs")  # It would not know what was written since.
        assert [record.outputs for record in records] == [{}, {"/out/a": "new"}, {}]
        assert all((one.state, one.lines, one.choices) == (State.DONE, None, {}) for one in records)


def test_runs_that_begin_at_once_migrate_a_journal_once(journal: Path) -> None:
    start = threading.Barrier(4)

    def run(_: int) -> int:
        start.wait()
        with JobJournal(journal, pytest.fail) as mine:
            return len(mine.records())

    with ThreadPoolExecutor(4) as runs:
        assert list(runs.map(run, range(4))) == [52] * 4
    with closing(sqlite3.connect(journal.with_name("jobs.db.version-0"))) as copy:
        assert copy.execute("SELECT count(outputs) FROM jobs").fetchone() == (52,)


def test_a_journal_is_migrated_without_a_copy_if_there_is_no_room_for_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def on_a_full_disk(path: object, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(str(path), **options)
        if "version-" in str(path):
            connection.execute("PRAGMA max_page_count=1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", on_a_full_disk)
    with JobJournal(journal, pytest.fail) as migrated:
        assert len(migrated.records()) == 52
    assert not list(journal.parent.glob("*version*"))


def test_another_programs_database_with_jobs_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE jobs (id INTEGER)")
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="is another program's database"):
        JobJournal(path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)


def test_a_newer_journal_is_refused_by_name_and_left_as_it_is(journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as newer:
        newer.execute(f"PRAGMA application_id={0x4544474A}")
        newer.execute("PRAGMA user_version=99")
        newer.commit()
    before = journal.read_bytes()
    with pytest.raises(OutputError, match=r"jobs\.db was written by a newer edgeapp: "):
        JobJournal(journal)
    assert journal.read_bytes() == before


def test_a_damaged_journal_is_set_aside_and_begun_anew(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)
    damaged, said = journal.read_bytes(), list[str]()
    with JobJournal(journal, said.append) as new:
        assert new.records() == []
        with new.job("key", "translate", "a.txt", "demo", LinesPiece) as job:
            assert job is not None
            job.done(None, {}, 1)
    (line,) = said
    assert line == (
        f"{journal} was damaged: a new journal was begun; the damaged file is kept as "
        "jobs.db.broken-1"
    )
    aside = journal.with_name("jobs.db.broken-1")
    assert aside.read_bytes() == damaged
    with JobJournal(journal):
        assert aside.exists()
    os.utime(aside, (0, 0))
    with JobJournal(journal):
        assert not aside.exists(), "its texts are kept for 30 days"


def test_clearing_the_jobs_deletes_all_texts(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 4000)
    with JobJournal(journal, lambda _: None):
        journal.with_name("jobs.db.version-0").write_bytes(b"Kept then.")
    assert CliRunner().invoke(app, ["jobs", "--clear"]).exit_code == 0
    assert not any(b"Kept then." in file.read_bytes() for file in journal.parent.glob("jobs.db*"))
