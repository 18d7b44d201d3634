"""`edgeapp transcribe` to files: what is replaced, what is done again, and full disks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import TranscriptPiece
from edgeapp.cli import app
from pipelines import OutputError

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
    assert "done already" in transcribe("-f", "srt", "--subtitle-style", "whisper")[1]
    code, err = transcribe("-f", "srt")
    assert code == 1
    assert "was edited since" in err


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
