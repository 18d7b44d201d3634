"""Names of files and models are shown without effect on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.cli import main
from edgeapp.console import print_note, print_traceback, printable, progress
from pipelines.hub import ModelInfo

# Clears the screen, sets the window's title, moves up, and reverses the direction of writing.
HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b1A\u202eb"
HARMLESS = r"a\x1b[2J\x1b]0;title\x07\x9b1A\u202eb"


def test_escape_sequences_are_shown() -> None:
    assert printable(HOSTILE) == HARMLESS
    assert printable("für\t日本 🙂\n") == "für\t日本 🙂\n"
    assert printable("a\udcffb\r\x00") == r"a\udcffb\r\x00"


def test_notes_and_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_note(f"{HOSTILE}\nedgeapp: all is well")
    print_traceback(ValueError(HOSTILE))
    note, *traceback = capsys.readouterr().err.splitlines()
    assert note == f"edgeapp: {HARMLESS}\\nedgeapp: all is well"
    assert traceback == [f"ValueError: {HARMLESS}"]


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "200")
    with progress() as bar:
        bar.add_task(f"[/b] {HOSTILE}", total=1)
    shown = capsys.readouterr().err
    assert f"[/b] {HARMLESS}" in shown
    assert "\x1b[2J" not in shown


def test_a_file_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SystemExit):
        main(["transcribe", str(tmp_path / f"{HOSTILE}.mp3"), "-m", "demo"])
    shown = capsys.readouterr().err
    assert HARMLESS in shown
    assert "\x1b" not in shown


def test_a_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelInfo(f"[/b]{HOSTILE}", "asr", 1, Path(f"/tmp/{HOSTILE}"), "cache", None)
    monkeypatch.setattr("pipelines.hub.list_models", lambda: [model])
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit):
        main(["models", "list"])
    shown = capsys.readouterr().out
    assert f"[/b]{HARMLESS}" in shown
    assert f"/tmp/{HARMLESS}" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
