"""Subtitles of recordings keep to a style; openai-whisper's own layout is one flag away."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeapp.cli import app
from edgeapp.documents.subtitle_file import read
from edgeapp.subtitles.check import violations
from edgeapp.subtitles.style import style_of

TALK = Path(__file__).resolve().parents[4] / "assets" / "samples" / "talk.flac"


def _subtitles(tmp_path: Path, *arguments: str) -> Path:
    target = tmp_path / "talk.srt"
    command = [
        "transcribe",
        str(TALK),
        "-m",
        "demo",
        "-o",
        str(target),
        "--no-journal",
        "--overwrite",
    ]
    result = CliRunner().invoke(app, [*command, *arguments])
    assert result.exit_code == 0, result.stderr
    return target


@pytest.mark.slow
@pytest.mark.parametrize("style", ["plain", "netflix", "bbc"])
def test_no_rule_is_broken_that_the_speech_allows(tmp_path: Path, style: str) -> None:
    cues = read(_subtitles(tmp_path, "--subtitle-style", style)).cues
    assert len(cues) > 3
    assert [v for v in violations(cues, style_of(style)) if v.rule not in ("speed", "short")] == []


@pytest.mark.slow
def test_openai_whispers_layout_has_a_cue_per_segment(tmp_path: Path) -> None:
    whole = read(_subtitles(tmp_path, "--subtitle-style", "whisper")).cues
    assert all("\n" not in cue.text for cue in whole)
    shaped = read(_subtitles(tmp_path)).cues
    assert " ".join(" ".join(cue.text.split()) for cue in shaped) == " ".join(
        " ".join(cue.text.split()) for cue in whole
    )


def test_an_unknown_style_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["transcribe", str(TALK), "--subtitle-style", "disney"])
    assert result.exit_code == 2
