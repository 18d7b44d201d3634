"""RunProgress: one line for all files, notes in a pipe, events for programs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgeapp.batch.run_progress import ProgressOutput, RunProgress
from pipelines import InputError


class Clock:
    """A clock that is set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        # Not time.monotonic itself, which event loops of servers in other threads read.
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("edgeapp.batch.run_progress.time", clock)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, size in (("a.mp3", 1000), ("b.mp3", 1000), ("c.mp3", 2000)):
        (tmp_path / name).write_bytes(b"x" * size)
    return [str(tmp_path / f"{name}.mp3") for name in "abc"]


def run(files: list[str], output: ProgressOutput, clock: Clock) -> None:
    """a is done already, b is done, c fails in the middle."""
    with RunProgress(files, "audio", output) as progress:
        with progress.file(files[0]):
            progress.skip("done already")
        with progress.file(files[1]):
            progress.total(600.0)
            clock.now += 60
            progress.advance_to(300.0)
            clock.now += 60
            progress.advance_to(600.0)
            progress.wrote([Path("b.srt")])
        with suppress(InputError), progress.file(files[2]):
            progress.total(1200.0)
            clock.now += 60
            progress.advance_to(300.0)
            raise InputError("it breaks off\nhere")


def test_events(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(files, ProgressOutput.EVENTS, Clock(monkeypatch))
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert [each["event"] for each in events] == [
        "run", "started", "skipped", "started", "progress", "progress", "done", "started",
        "progress", "failed", "summary",
    ]  # fmt: skip
    half = events[4]
    assert (half["share"], half["audio_s"], half["files_done"], half["files"]) == (0.5, 300, 1, 3)
    assert half["speed"] == 5.0
    assert half["seconds_left"] == 300.0, "500 bytes took 60 s, and 2,500 are left"
    assert events[6] == {
        "event": "done", "file": files[1], "outputs": ["b.srt"], "worked_s": 120.0, "audio_s": 600.0
    }  # fmt: skip
    assert events[9]["message"] == "it breaks off"
    summary = events[-1]
    assert [summary[name] for name in ("done", "skipped", "failed")] == [1, 1, 1]
    assert summary["failures"] == [{"file": files[2], "message": "it breaks off"}]


def test_warnings_are_events_and_a_part_of_the_outcome(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with RunProgress(files, "audio", ProgressOutput.EVENTS) as progress:
        with progress.file(files[0]):
            progress.warned("no speech was found")
            assert progress.outcome.warnings == ["no speech was found"]
        with progress.file(files[1]):
            assert progress.outcome.warnings == []
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event for event in events if event["event"] == "warning"] == [
        {"event": "warning", "file": files[0], "message": "no speech was found"}
    ]


def test_notes_in_a_pipe(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(files, ProgressOutput.TERMINAL, Clock(monkeypatch))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == (
        "edgeapp: 1 of 3 files done, b.mp3, 5:00 of audio, 5.0 x real time, 5:00 left, at 50%"
    )
    assert lines[-2] == (
        "edgeapp: 1 done, 1 skipped, 1 failed; 10:00 of audio, 3.3 x real time, in 3:00"
    )
    assert lines[-1] == f"edgeapp: failed: {files[2]}: it breaks off"


def test_what_an_earlier_run_has_done_is_not_counted_as_speed(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    run = RunProgress(files[:1], "audio", ProgressOutput.EVENTS)
    with run, run.file(files[0]):
        run.total(600.0, 300.0)
        clock.now += 10
        run.advance_to(450.0)
    event = json.loads(capsys.readouterr().out.splitlines()[2])
    assert (event["audio_s"], event["speed"], event["seconds_left"]) == (150.0, 15.0, 10.0)
