"""The journal: finished pieces verbatim, one run at a job, records for `edgeapp jobs`."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeapp.batch.journal.job_journal import JobJournal, Origin, State
from edgeapp.batch.journal.pieces import TranscriptPiece
from pipelines import OutputError, Segment, Word
from pipelines.asr import Alternative, Checkpoint
from pipelines.subtitles import Cue

_WORDS = (Word(" Grüße,", 0.1, 1 / 3, 0.9), Word(" 春", 0.4, 0.7, 1e-7))
_BEST = (Alternative("Grüße, 春", -0.1, (1, 2)), Alternative("Süße", -1 / 3, (3,)))
_PIECE = TranscriptPiece(
    (Segment(0, 0, 0.1, 2 / 3, " Grüße, 春", (1, 2), 0.0, -0.1, 1.1, 0.01, _WORDS, _BEST),),
    (Cue(0.1, 2 / 3, "Hello,\nspring"),),
    Checkpoint(1, 67, prompt=(1, 2), language="de"),
)


def test_pieces_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "data" / "jobs.db"
    with JobJournal(path).job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        assert job.pieces == []
        job.add(_PIECE)
    with JobJournal(path).job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        assert job.pieces == [_PIECE]
        job.forget()
    with JobJournal(path).job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        assert job.pieces == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_job_belongs_to_one_run(tmp_path: Path) -> None:
    first, second = JobJournal(tmp_path / "jobs.db"), JobJournal(tmp_path / "jobs.db")
    with first.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece):
        with second.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
            assert job is None
        with second.job("other", "transcribe", "call.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
    with second.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None


def _hold(path: Path, begun: multiprocessing.synchronize.Event) -> None:
    with JobJournal(path).job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece):
        begun.set()
        threading.Event().wait()


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "jobs.db", begun))
    process.start()
    assert begun.wait(60)
    journal = JobJournal(tmp_path / "jobs.db")
    with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is None
    process.kill()
    process.join()
    with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None


def test_records_say_how_a_job_ended(tmp_path: Path) -> None:
    journal = JobJournal(tmp_path / "jobs.db")
    for key in ("good", "bad", "stopped"):
        with journal.job(key, "transcribe", f"{key}.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
            job.running()
            if key == "good":
                job.done(12.5, {tmp_path / "good.srt": "plain"})
            else:
                error = KeyboardInterrupt() if key == "stopped" else ValueError("no sound\nat all")
                job.stopped(None, error)
    found = {record.key: record for record in journal.records()}
    assert found["good"].state is State.DONE
    assert found["good"].outputs == {str(tmp_path / "good.srt"): "plain"}
    assert found["good"].audio_s == 12.5
    assert (found["bad"].state, found["bad"].message) == (State.FAILED, "no sound")
    assert (found["stopped"].state, found["stopped"].message) == (State.RUNNING, "")
    assert journal.clear() == 3
    assert journal.records() == []


def test_pieces_of_another_version_begin_anew(tmp_path: Path) -> None:
    journal = JobJournal(tmp_path / "jobs.db")
    with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        job.add(_PIECE)
    journal.execute("UPDATE pieces SET content = ?", ('{"old": 1}',))
    with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        assert job.pieces == []


def test_a_file_that_is_no_journal_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(OutputError, match="is no journal of edgeapp"):
        JobJournal(path)
    assert path.read_bytes() == b"something else" * 100


def test_only_jobs_that_are_cleared_are_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, locked = JobJournal(tmp_path / "jobs.db"), list[str]()
    for key in ("good", "bad"):
        with journal.job(key, "transcribe", f"{key}.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
            if key == "bad":
                job.stopped(None, ValueError("no sound"))
    lock = journal._lock

    def watched(key: str) -> AbstractContextManager[bool]:
        locked.append(key)
        return lock(key)

    monkeypatch.setattr(journal, "_lock", watched)
    assert journal.clear(State.FAILED) == 1
    assert locked == ["bad"]


def test_a_file_holds_the_results_of_the_last_job_that_wrote_it(tmp_path: Path) -> None:
    journal, path = JobJournal(tmp_path / "jobs.db"), tmp_path / "talk.srt"
    for key in ("english", "german"):
        with journal.job(key, "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
            job.done(1.0, {path: "plain", tmp_path / f"{key}.vtt": "plain"})
    found = {record.key: set(record.outputs) for record in journal.records()}
    assert found["english"] == {str(tmp_path / "english.vtt")}
    assert found["german"] == {str(path), str(tmp_path / "german.vtt")}
    with journal.job("german", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        job.done(1.0, {tmp_path / "talk.txt": "plain"})
    record = journal.record("german")
    assert record is not None
    assert len(record.outputs) == 3


def test_names_that_are_not_utf8_and_clearing_beside_a_run(tmp_path: Path) -> None:
    journal = JobJournal(tmp_path / "jobs.db")
    with journal.job("key", "transcribe", "caf\udce9.wav", "demo", TranscriptPiece) as job:
        assert job is not None
        job.add(_PIECE)
        assert JobJournal(tmp_path / "jobs.db").clear() == 0
        job.add(_PIECE)
        job.done(1.0, {tmp_path / "caf\udce9.srt": "plain"})
    assert [record.input for record in journal.records()] == ["caf\\xe9.wav"]


def test_files_are_known_by_what_was_written_to_them(tmp_path: Path) -> None:
    journal, path = JobJournal(tmp_path / "jobs.db"), tmp_path / "talk.srt"
    assert journal.digests_of(path) == set()
    journal.note_file(path, "first")
    journal.note_file(path, "second")
    assert journal.digests_of(path) == {"first", "second"}, "either is there after a power cut"
    journal.forget_earlier_files(path)
    assert journal.digests_of(path) == {"second"}
    journal.clear(State.FAILED)
    assert journal.digests_of(path) == {"second"}
    journal.clear()
    assert journal.digests_of(path) == set()


def test_a_result_belongs_to_its_input_only(tmp_path: Path) -> None:
    journal, path = JobJournal(tmp_path / "jobs.db"), tmp_path / "talk.srt"
    own, other = tmp_path / "own.mp3", tmp_path / "other.mp3"
    own.write_bytes(b"own")
    other.write_bytes(b"other")
    origins = [Origin.of(str(each), str(each)) for each in (own, other)]
    assert journal.other_origin(path, origins[0]) is None, "no file is known"
    journal.note_file(path, "digest", origins[0])
    assert journal.other_origin(path, origins[0]) is None
    assert journal.other_origin(path, origins[1]) == str(own)
    own.rename(tmp_path / "renamed.mp3")
    renamed = str(tmp_path / "renamed.mp3")
    assert journal.other_origin(path, Origin.of(renamed, renamed)) is None
    journal.note_file(path, "earlier")
    assert "an earlier version" in str(journal.other_origin(path, origins[1]))
    journal.note_file(path, "text", Origin("-", text="Good morning."))
    assert journal.other_origin(path, Origin("-", text="Good morning.")) is None
    assert "another text" in str(journal.other_origin(path, Origin("-", text="Good night.")))
    assert "stdin" in str(journal.other_origin(path, Origin("-")))
    journal.note_file(path, "stdin", Origin("-"))
    assert "stdin" in str(journal.other_origin(path, Origin("-")))


@pytest.mark.parametrize("ended", [False, True])
def test_a_job_is_done_though_its_journal_is_deleted(tmp_path: Path, ended: bool) -> None:
    path, result = tmp_path / "jobs.db", tmp_path / "talk.srt"
    with JobJournal(path) as journal:
        with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
            job.running()
            job.add(_PIECE)
            for file in tmp_path.glob("jobs.db*"):
                file.unlink()
            job.add(_PIECE)
            with pytest.raises(OutputError, match="deleted while a run used it: run the command"):
                job.pieces  # noqa: B018  # the first is missing
            if ended:
                job.stopped(1.0, KeyboardInterrupt())
            else:
                job.done(1.0, {result: "plain"})
        (record,) = journal.records()
        assert (record.input, record.outputs == {str(result): "plain"}) == ("talk.mp3", not ended)
        with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
            assert job is not None
            assert job.pieces == [], "the second alone would be taken for the first"


class _Interrupted(sqlite3.Connection):
    """A connection on which Ctrl-C comes while the next transaction waits for another run."""

    due = False

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> sqlite3.Cursor:
        cursor = super().execute(statement, values)
        if _Interrupted.due and statement.startswith("BEGIN"):
            _Interrupted.due = False
            raise KeyboardInterrupt
        return cursor


def test_ctrl_c_that_comes_while_a_write_waits_is_no_failure_and_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=_Interrupted))
    journal = JobJournal(tmp_path / "jobs.db")
    with journal.job("key", "transcribe", "talk.mp3", "demo", TranscriptPiece) as job:
        assert job is not None
        job.add(_PIECE)
        for work in (lambda: job.add(_PIECE), journal.records):
            _Interrupted.due = True
            with pytest.raises(KeyboardInterrupt):
                work()
            with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=0)) as other:
                other.execute("BEGIN IMMEDIATE")
        job.add(_PIECE)
        job.stopped(None, KeyboardInterrupt())
        assert job.pieces == [_PIECE, _PIECE]
    assert [record.state for record in journal.records()] == [State.RUNNING]


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    with JobJournal(tmp_path / "jobs.db") as journal:
        assert journal.records() == []
    with pytest.raises(OutputError, match="is closed"):
        journal.records()
