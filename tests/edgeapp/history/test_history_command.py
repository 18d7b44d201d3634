"""`edgeapp history`: list, export, delete, repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.cli import main
from edgeapp.history import History
from pipelines.subtitles import Cue, Transcript
from tests.edgeapp.history.records import add_file


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("EDGEAPP_HISTORY", str(tmp_path / "data" / "history.db"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data" / "history.db"


@pytest.fixture
def filled(path: Path) -> Path:
    transcript = Transcript(
        "en", (Cue(0.0, 1.5, " Good morning."),), (Cue(0.0, 1.5, "Guten Morgen."),), "de"
    )
    with History(path, pytest.fail) as history:
        add_file(history, transcript, "talk.flac", 62.5)
        history.add_text("Two\nlines", "Zwei\nZeilen", language="en", target="de")
        history.of("anna").add_text("Private.", "")
    return path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["history", *map(str, arguments)])
    return int(stop.value.code or 0)


@pytest.mark.slow
def test_listing(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    text, talk = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert (text[0], text[2:]) == ("2", ["text", "", "en → de", "Two lines Zwei Zeilen"])
    assert (talk[0], talk[2:]) == ("1", ["file", "01:02", "en → de", "talk.flac"])
    assert run("list", "morning") == 0
    assert capsys.readouterr().out.startswith("1\t")
    assert run("list", "--owner", "anna") == 0
    assert "Private." in capsys.readouterr().out


def test_an_empty_history(
    path: Path, filled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("list", "nothing like this") == 0
    assert capsys.readouterr() == ("", "edgeapp: no record has 'nothing like this'\n")
    monkeypatch.setenv("EDGEAPP_HISTORY", str(path.with_name("none.db")))
    assert run("list") == 0
    assert capsys.readouterr() == ("", "edgeapp: the history is empty\n")
    assert not path.with_name("none.db").exists()


def test_titles_have_no_effect_on_a_terminal(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with History(path, pytest.fail) as history:
        history.add_text("[red]one\x1b]0;title\x07", "")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    assert run("list") == 0
    shown = capsys.readouterr().out
    assert r"[red]one\x1b]0;title\x07" in shown


@pytest.mark.slow
def test_exporting(filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", 1, "-f", "srt") == 0
    assert capsys.readouterr().out == "1\n00:00:00,000 --> 00:00:01,500\nGood morning.\n\n"
    assert run("export", 2, "--translation") == 0
    assert capsys.readouterr().out == "Zwei\nZeilen\n"
    assert run("export", 1, "-f", "vtt", "--translation", "-o", "a.vtt") == 0
    assert "Guten Morgen." in (tmp_path / "a.vtt").read_text()
    assert run("export", 1, "-o", "a.vtt") == 2, "a file is not overwritten"
    assert run("export", 1, "-f", "all") == 2
    assert run("export", 3) == 1, "it is another person's"
    assert "the history has no record 3" in capsys.readouterr().err


@pytest.mark.slow
def test_deleting(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("delete") == run("delete", 1, "--all") == 2
    assert run("delete", 1, 7) == 1
    assert capsys.readouterr().err.endswith("the history has no record 7\n")
    assert run("delete", "--all") == 0
    assert capsys.readouterr().err == "edgeapp: 1 record deleted\n"
    with History(filled, pytest.fail) as history:
        assert history.list() == ()
        assert len(history.of("anna").list()) == 1


@pytest.mark.slow
def test_repairing(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("repair") == 0
    assert capsys.readouterr().err == "edgeapp: the history is sound\n"
    content = bytearray(filled.read_bytes())
    content[:4096] = b"\xff" * 4096
    filled.write_bytes(content)
    assert run("list") == 1
    assert "its beginning is damaged: `edgeapp history repair`" in capsys.readouterr().err
    assert run("repair") == 0
    damaged, repaired = capsys.readouterr().err.splitlines()
    assert "was damaged: 3 records with 5 lines could be read" in damaged
    assert repaired == "edgeapp: the history is repaired"
    assert run("export", 1) == 0
    assert capsys.readouterr().out == "Good morning.\n"


@pytest.mark.slow
def test_without_a_history(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (("repair",), ("export", 1), ("delete", 1)):
        assert run(*command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"edgeapp: there is no history yet: {path} does not exist"
    assert not path.exists()
    monkeypatch.setenv("EDGEAPP_HISTORY", "off")
    assert run("list") == 2
    assert "the history is switched off" in capsys.readouterr().err
