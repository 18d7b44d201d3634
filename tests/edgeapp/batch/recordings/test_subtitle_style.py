"""Subtitles of recordings keep to a style; openai-whisper's own layout is one flag away."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from edgeapp.batch.recordings.transcription_runner import TranscriptionRunner
from edgeapp.cli import app
from edgeapp.documents.subtitle_file import read
from edgeapp.model_pool import ModelPool
from edgeapp.subtitles.check import violations
from edgeapp.subtitles.style import DEFAULT_STYLE, style_of
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import TranscribeOptions, Transcriber

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


def _plan(tmp_path: Path, *arguments: str) -> str:
    command = ["transcribe", str(TALK), "-m", "demo", "-o", str(tmp_path / "out"), *arguments]
    return CliRunner().invoke(app, [*command, "--dry-run"]).stdout


@pytest.mark.slow
def test_cues_come_with_their_first_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of words are computed for subtitles; --word-timestamps False estimates them."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    out = tmp_path / "out"
    command = ["transcribe", str(TALK), "-m", "demo", "-o", str(out), "-f", "srt,json"]
    assert CliRunner().invoke(app, command).exit_code == 0
    cues = read(out / "talk.srt").cues
    segments = json.loads((out / "talk.json").read_text("utf-8"))["segments"]
    words = [word for segment in segments for word in segment["words"]]
    said = [text.strip() for word in words for text in word["word"].split()]
    assert " ".join(cue.text for cue in cues).split() == said
    at = 0
    for cue in cues:
        count = len(cue.text.split())
        assert cue.start == pytest.approx(words[at]["start"], abs=0.002)
        at += count
    # What was decoded for subtitles serves formats without times of words, and not JSON.
    assert "decoded already" in _plan(tmp_path, "-f", "txt")
    assert "decoded already" in _plan(tmp_path, "-f", "srt", "--subtitle-style", "bbc")
    for others in (
        ("-f", "json"),
        ("-f", "txt", "--word-timestamps", "False"),
        ("-f", "srt", "--word-timestamps", "False"),
        ("-f", "srt", "--subtitle-style", "whisper"),
    ):
        assert "already" not in _plan(tmp_path, *others), others
    estimated = _subtitles(tmp_path, "--word-timestamps", "False")
    assert [c.start for c in read(estimated).cues] != [c.start for c in cues]


@pytest.mark.parametrize(
    ("change", "computed"),
    [
        ({}, True),
        ({"formats": ("txt", "json")}, False),
        ({"formats": ("txt", "vtt")}, True),
        ({"computes_words": False}, False),
        ({"style": None}, False),
        ({"task": "translate"}, False),
        ({"able": False}, False),
    ],
)
def test_words_are_timed_where_subtitles_need_them(change: dict[str, Any], computed: bool) -> None:
    formats = change.get("formats", ("srt",))
    able = SimpleNamespace(word_timestamps=change.get("able", True))
    runner = TranscriptionRunner(
        cast(ModelPool, None),
        cast(Transcriber, SimpleNamespace(capabilities=able)),
        TranscribeOptions(task=change.get("task", "transcribe")),
        None,
        None,
        TranscriptOutput(formats, Path(), ()),
        False,
        WordCueLayout(),
        style=change.get("style", DEFAULT_STYLE),
        computes_words=change.get("computes_words", True),
    )
    assert runner.options.word_timestamps is computed
