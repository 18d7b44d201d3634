"""`edgeapp subtitles check` names cue and rule, and fails where there is a violation."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from edgeapp.cli import app

_GOOD = "1\n00:00:01,000 --> 00:00:03,000\n<i>Good morning,</i>\nmy friend.\n"
_BAD = "1\n00:00:01,000 --> 00:00:01,200\nGood morning, my friend.\n"


def _run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["subtitles", "check", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_violations_are_reported_with_cue_and_rule(tmp_path: Path) -> None:
    (tmp_path / "good.srt").write_text(_GOOD)
    (tmp_path / "bad.srt").write_text(_BAD)
    assert _run(str(tmp_path / "good.srt"))[:2] == (0, "")
    code, out, err = _run(str(tmp_path / "bad.srt"), str(tmp_path / "good.srt"))
    assert code == 1
    assert "bad.srt: 1 cue, 2 violations of plain\n" in err
    assert [line.split(": ")[1:3] for line in out.splitlines()] == [
        ["cue 1 (00:00:01.000)", "short"],
        ["cue 1 (00:00:01.000)", "speed"],
    ]


def test_json_has_one_object_per_violation(tmp_path: Path) -> None:
    path = tmp_path / "bad.srt"
    path.write_text(_BAD)
    _, out, _ = _run("--json", str(path))
    assert [json.loads(line)["rule"] for line in out.splitlines()] == ["short", "speed"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.srt").write_text(_BAD)
    code, out, err = _run(str(tmp_path / "none.srt"), str(tmp_path / "bad.srt"))
    assert code == 1
    assert "none.srt cannot be read" in err
    assert "short" in out


def test_a_text_is_no_subtitle_file(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("Good morning.\n")
    code, _, err = _run(str(tmp_path / "t.txt"))
    assert code == 1
    assert "t.txt is no subtitle file; their names end with .srt, .vtt" in err


def test_an_unknown_style_is_a_usage_error(tmp_path: Path) -> None:
    assert _run("--style", "disney", str(tmp_path / "x.srt"))[0] == 2


def test_a_line_whose_times_are_not_understood_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.srt").write_text(f"{_GOOD}\n2\n00:00:0x,000 --> 00:00:06,000\nHello.\n")
    code, out, err = _run(str(tmp_path / "odd.srt"))
    assert (code, out) == (1, "")
    assert "odd.srt cannot be read as srt: line 7: its times are not understood" in err


def test_times_before_zero_and_after_thousands_of_hours_are_checked(tmp_path: Path) -> None:
    (tmp_path / "odd.srt").write_text(
        "1\n-00:00:02 --> -00:00:01,800\nOh.\n\n2\n1234:00:00,000 --> 1234:00:00,100\nOh.\n"
    )
    _, out, _ = _run(str(tmp_path / "odd.srt"))
    assert "cue 1 (-00:00:02.000): short" in out
    assert "cue 2 (1234:00:00.000): short" in out
