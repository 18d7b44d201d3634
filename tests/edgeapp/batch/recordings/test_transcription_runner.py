"""`edgeapp transcribe` to files: what is replaced, what is done again, and full disks."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import TranscriptPiece
from edgeapp.batch.outputs import reserved
from edgeapp.cli import app
from pipelines import OutputError
from pipelines.asr import WINDOW_VAD

pytestmark = pytest.mark.slow
QUESTION = Path(__file__).resolve().parents[4] / "assets" / "samples" / "question.flac"


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def transcribe(*arguments: str) -> tuple[int, str]:
    command = ["transcribe", str(QUESTION), "-m", "demo", "--threads", "1", "-o", "out"]
    result = CliRunner().invoke(app, [*command, *arguments])
    return result.exit_code, result.stderr


def plan(*arguments: str) -> str:
    """Return what --dry-run prints."""
    command = ["transcribe", str(QUESTION), "-m", "demo", "-o", "out", "--dry-run", *arguments]
    return CliRunner().invoke(app, command).stdout


def test_a_file_of_other_origin_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "out" / "question.srt"
    mine.parent.mkdir()
    mine.write_text("my own work\n")
    code, err = transcribe("-f", "srt,txt")
    assert code == 1
    assert "question.srt exists" in err
    assert [path.name for path in mine.parent.iterdir()] == ["question.srt"]
    assert transcribe("-f", "srt", "--overwrite")[0] == 0
    assert transcribe("-f", "srt", "--subtitle-style", "whisper")[0] == 0
    mine.write_text(mine.read_text("utf-8") + "corrected\n", "utf-8")
    for style in (("--subtitle-style", "whisper"), ()):
        code, err = transcribe("-f", "srt", *style)
        assert code == 1
        assert "question.srt was edited since it was written: --overwrite replaces it" in err
        assert "done already" not in err
    assert mine.read_text("utf-8").endswith("corrected\n")


def test_an_edited_result_of_a_done_job_fails_by_name(tmp_path: Path) -> None:
    command = ("-f", "txt,json,srt", "--translate-to", "de")
    assert transcribe(*command)[0] == 0
    assert "done already" in transcribe(*command)[1]
    for name in ("question.txt", "question.json", "question.srt", "question.de.srt"):
        result = tmp_path / "out" / name
        written = result.read_bytes()
        result.write_bytes(written + b" ")
        code, err = transcribe(*command)
        assert (code, "done already" in err) == (1, False)
        assert f"{name} was edited since it was written" in err
        assert f"{name} was edited since" in plan(*command)
        result.write_bytes(written)
    assert "done already" in transcribe(*command)[1]
    result.write_bytes(b"")  # An empty file is replaced.
    assert transcribe(*command)[0] == 0
    assert result.read_bytes() == written


def test_without_a_journal_no_existing_file_is_replaced(tmp_path: Path) -> None:
    assert transcribe("-f", "txt", "--no-journal")[0] == 0
    code, err = transcribe("-f", "txt", "--no-journal")
    assert code == 1
    assert "question.txt exists" in err


def test_an_input_that_is_not_there_has_one_line_in_either_way() -> None:
    for size in ("1", "8"):
        code, err = transcribe("missing.flac", "-f", "txt", "--batch-size", size, "--overwrite")
        assert code == 1
        assert "edgeapp: missing.flac: there is no such file" in err
        assert "unexpected" not in err


def test_another_translation_model_is_another_job(tmp_path: Path) -> None:
    command = ("-f", "txt", "--translate-to", "de")
    assert transcribe(*command)[0] == 0
    assert "done already" in transcribe(*command)[1]
    with closing(sqlite3.connect(tmp_path / "data" / "edgeapp" / "jobs.db")) as journal:
        journal.execute("UPDATE jobs SET choices = json_set(choices, '$.translator', '/other')")
        journal.commit()
    assert "done already" not in transcribe(*command)[1]
    assert "done already" in transcribe(*command)[1]


def test_bilingual_subtitles_are_the_translated_files(tmp_path: Path) -> None:
    assert transcribe("-f", "srt,txt", "--translate-to", "de", "--bilingual")[0] == 0
    english, german, alone, both = (
        (tmp_path / "out" / f"question{ending}").read_text("utf-8")
        for ending in (".txt", ".de.txt", ".srt", ".de.srt")
    )
    (cue,) = both.strip().split("\n\n")
    assert " ".join(cue.splitlines()[2:]).split() == english.split() + german.split()
    assert german.split()[0] not in alone


def test_other_defaults_of_speech_are_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("-f", "txt", "--batch-size", "1", "--vad-filter", "True")
    assert transcribe(*command)[0] == 0
    assert "done already" in plan(*command)
    monkeypatch.setattr("pipelines.asr.WINDOW_VAD", replace(WINDOW_VAD, speech_pad_ms=300))
    assert "done already" not in plan(*command)


def test_full_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 20))
        code, err = transcribe("-f", "txt")
        assert code == 1
        assert "has 1 MB left" in err

    def full(job: Job[TranscriptPiece], piece: TranscriptPiece) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr(Job, "add", full)
    code, err = transcribe("-f", "txt")
    assert (code, err.count("going on without the journal")) == (0, 1)
    assert "train" in (tmp_path / "out" / "question.txt").read_text("utf-8")


def _run(*arguments: str) -> tuple[int, str]:
    command = ["transcribe", *arguments, "-m", "demo", "--threads", "1"]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stderr


@pytest.mark.parametrize("journal", [True, False])
def test_a_result_of_another_recording_of_the_same_name_is_kept(
    tmp_path: Path, journal: bool
) -> None:
    talk = QUESTION.with_name("talk.flac")
    for day, sample in (("monday", talk), ("tuesday", QUESTION)):
        (tmp_path / day).mkdir()
        shutil.copy(sample, tmp_path / day / "talk.flac")
    options = ("-f", "txt", "-o", "out", *(() if journal else ("--no-journal",)))
    assert _run("monday/talk.flac", *options)[0] == 0
    written = (tmp_path / "out" / "talk.txt").read_bytes()
    code, err = _run("tuesday/talk.flac", *options)
    assert code == 1
    assert "out/talk.txt " in err
    assert "--overwrite replaces it, -o names another place" in err
    assert (tmp_path / "out" / "talk.txt").read_bytes() == written
    if not journal:
        return
    assert f"holds the result of {tmp_path}/monday/talk.flac" in err
    # The same recording under another name, and the same path after a change, replace it.
    (tmp_path / "monday").rename(tmp_path / "friday")
    assert _run("friday/talk.flac", *options, "--subtitle-style", "bbc")[0] == 0
    shutil.copy(QUESTION, tmp_path / "friday" / "talk.flac")
    assert _run("friday/talk.flac", *options)[0] == 0
    assert (tmp_path / "out" / "talk.txt").read_bytes() != written


def test_of_two_runs_for_one_file_the_second_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.Transcriber.stream", lambda *_, **__: pytest.fail("it worked"))
    (tmp_path / "out").mkdir()
    with reserved([tmp_path / "out" / "question.txt"]):
        for more in ((), ("--no-journal",)):
            code, err = transcribe("-f", "txt", *more)
            assert code == 1
            assert "question.txt is being written by another run" in err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("length", [239, 247, 250, 251])
def test_names_of_255_bytes(tmp_path: Path, length: int) -> None:
    name = "ж" * (length // 2) + "y" * (length % 2)
    shutil.copy(QUESTION, tmp_path / f"{name}.wav")
    command = (f"{name}.wav", "-f", "srt,json", "-o", "out", "--translate-to", "de")
    assert _run(*command)[0] == 0
    assert "done already" in _run(*command)[1]
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(written) == 3
    assert all(len(name.encode()) <= 255 for name in written)
    assert {name.partition(".")[2] for name in written} == {"srt", "de.srt", "json"}
    if length <= 250:
        assert f"{name}.srt" in written
