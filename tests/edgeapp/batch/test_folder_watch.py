"""FolderWatch: files that are wholly written, once each; and `edgeapp watch` with it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeapp.batch.folder_watch import FolderWatch
from edgeapp.cli import app
from pipelines import TranscribeOptions

QUESTION = Path(__file__).resolve().parents[3] / "assets" / "samples" / "question.flac"


class Clock:
    """A clock that is set by the test."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def names(watch: FolderWatch) -> list[str]:
    return [Path(each.path).name for each in watch.ready()]


def test_a_file_is_ready_when_it_no_longer_changes(tmp_path: Path) -> None:
    clock = Clock()
    watch = FolderWatch(tmp_path, frozenset({".txt"}), settle_s=2.0, clock=clock)
    assert names(watch) == []
    path = tmp_path / "deep" / "a.txt"
    path.parent.mkdir()
    path.write_text("one")
    (tmp_path / "a.jpg").write_text("picture")
    (tmp_path / "empty.txt").write_text("")
    assert names(watch) == []
    clock.now += 1.5
    path.write_text("one two")
    assert names(watch) == []
    clock.now += 1.5
    assert names(watch) == []
    assert str(path) in watch.growing
    clock.now += 1.5
    assert names(watch) == ["a.txt"]
    clock.now += 10
    assert names(watch) == [], "once only"
    os.utime(path, ns=(1, 1))
    assert names(watch) == []
    clock.now += 10
    assert names(watch) == ["a.txt"], "it was changed"
    path.unlink()
    assert names(watch) == []
    path.write_text("another")
    names(watch)
    clock.now += 10
    assert names(watch) == ["a.txt"], "a new file with the same name"


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_file_that_is_open_for_writing_is_not_ready(tmp_path: Path) -> None:
    clock = Clock()
    watch = FolderWatch(tmp_path, frozenset({".txt"}), settle_s=1.0, clock=clock)
    with (tmp_path / "a.txt").open("w") as file:
        file.write("slow")
        file.flush()
        names(watch)
        clock.now += 60
        assert names(watch) == []
    assert names(watch) == ["a.txt"]


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "talk.txt").write_text("Where is the station?\n")
    return folder


def watch_once(*arguments: object) -> tuple[int, str]:
    command = ["watch", *map(str, arguments), "--settle", "0", "-m", "demo", "--threads", "1"]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stderr


@pytest.mark.slow
def test_what_is_there_is_done_once(inbox: Path, tmp_path: Path) -> None:
    shutil.copy(QUESTION, inbox)
    (inbox / "film.srt").write_text("1\n00:00:01,000 --> 00:00:03,000\nGood morning, my friend.\n")
    (inbox / "bad.wav").write_text("no sound")
    command = (inbox, tmp_path / "out", "--translate-to", "de", "-f", "txt", "--once")
    code, err = watch_once(*command)
    assert code == 1
    assert "bad.wav" in err
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert set(written) == {
        "question.txt", "question.de.txt", "talk.de.txt", "film.de.srt"
    }  # fmt: skip
    (inbox / "bad.wav").unlink()
    assert watch_once(*command)[0] == 0
    assert written == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_it_follows_the_settings_of_transcribe(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('[transcribe]\nlanguages = ["en", "de"]\n')
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "config.toml"))
    code, err = watch_once(inbox, tmp_path / "out", "--once")
    assert (code, "demo recognizes only English, not German" in err) == (3, True)
    assert watch_once(inbox, tmp_path / "out", "--once", "-l", "en")[0] == 0
    seen: list[TranscribeOptions] = []
    monkeypatch.setattr(
        "edgeapp.commands.watch.find_or_pull_recognizer", lambda *given: seen.append(given[2])
    )
    (tmp_path / "config.toml").write_text("[transcribe]\ntemperature = 0\nmultilingual = true\n")
    assert watch_once(inbox, tmp_path / "out", "--once", "--translate-to", "de")[0] == 0
    assert seen == [TranscribeOptions()]


@pytest.mark.slow
def test_it_goes_on_until_it_is_interrupted_and_results_are_no_inputs(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results lie in the folder that is watched."""
    looked, wait = 0, time.sleep

    def sleep(seconds: float) -> None:
        nonlocal looked
        if threading.current_thread() is not threading.main_thread():
            wait(seconds)  # of another test, which has left it
            return
        looked += 1
        if looked == 2:
            (inbox / "late.txt").write_text("Good morning, my friend.\n")
        if looked == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    code, err = watch_once(inbox, inbox, "--translate-to", "de")
    assert code == 0
    assert "the same command goes on" in err
    assert err.count(": done\n") == 2, "each file is named when it is done"
    assert {path.name for path in inbox.iterdir()} == {
        "talk.txt", "talk.de.txt", "late.txt", "late.de.txt"
    }  # fmt: skip
