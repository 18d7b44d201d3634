"""Digests of files are remembered for as long as a file stays as it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from edgeapp.batch.journal import digests
from edgeapp.batch.journal.digests import FileDigests
from edgeapp.batch.journal.job_journal import JobJournal


def test_the_key_depends_on_bytes_and_settings(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one")
    key = FileDigests().job_key(source, model="m")
    assert key == hashlib.sha256(b'{"model": "m"}one').hexdigest()
    assert key != FileDigests().job_key(source, model="n")
    source.write_text("two")
    assert key != FileDigests().job_key(source, model="m")


def remembered(path: Path, source: Path) -> bool:
    """Whether a new run takes the digests of a file from the journal."""
    with JobJournal(path) as journal:
        journal.execute("UPDATE digests SET digest = 'remembered'", ())
        found = {journal.digests.of(source), journal.digests.job_key(source, model="m")}
        assert len(found) == (1 if "remembered" in found else 2)
        return "remembered" in found


def test_a_closed_journal_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SETTLED_S", -1.0)
    with JobJournal(tmp_path / "jobs.db") as journal:
        pass
    assert journal.digests.of(Path(__file__)) is not None
    assert journal.database.identity is None


def test_a_file_that_stays_as_it_is_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, source = tmp_path / "jobs.db", tmp_path / "a.txt"
    source.write_text("one")
    assert not remembered(path, source)
    assert not remembered(path, source), "it was changed a moment ago, and might be again"
    monkeypatch.setattr(digests, "_SETTLED_S", -1.0)
    assert not remembered(path, source)
    assert remembered(path, source)
    times = source.stat()
    source.write_text("two")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not remembered(path, source), "its time of change is another"
    assert remembered(path, source)
    source.rename(tmp_path / "b.txt")
    source.write_text("two")
    assert not remembered(path, source), "it is another file"
