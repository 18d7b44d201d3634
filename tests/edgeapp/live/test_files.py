"""Output files of a live session are valid after every write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeapp.live.events import SessionEnded, Status, TranslationPartial
from edgeapp.live.files import LiveOutputFile, plan_outputs
from pipelines.asr.live.events import CommittedText, PartialText
from pipelines.errors import OptionError, OutputError


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "jsonl"])
def test_output_files_are_valid_after_every_write(kind: str, tmp_path: Path) -> None:
    output = LiveOutputFile(tmp_path / f"talk.{kind}")
    output.write(CommittedText(" I am here.", 0.0, 1.0))
    output.write(PartialText(" and"))
    output.write(TranslationPartial("Ich"))
    output.write(Status(1.0, 0.0, 0.1, 0.0, -20.0))
    output.write(CommittedText(" And you", 1.0, 2.0))
    before = (tmp_path / f"talk.{kind}").read_text()
    output.write(SessionEnded(2.0))
    output.close()
    after = (tmp_path / f"talk.{kind}").read_text()
    assert after.startswith(before)
    if kind == "srt":
        assert before == "1\n00:00:00,000 --> 00:00:01,000\nI am here.\n\n"
        assert after.endswith("2\n00:00:01,000 --> 00:00:02,000\nAnd you\n\n")
    if kind == "vtt":
        assert before == "WEBVTT\n\n00:00.000 --> 00:01.000\nI am here.\n\n"
    if kind == "txt":
        assert (before, after) == ("I am here.\n", "I am here.\nAnd you\n")
    if kind == "jsonl":
        types = [json.loads(line)["type"] for line in after.splitlines()]
        assert types == ["committed", "committed", "end"]


def test_the_open_cue_is_written_when_a_session_is_interrupted(tmp_path: Path) -> None:
    output = LiveOutputFile(tmp_path / "talk.txt")
    output.write(CommittedText(" And you", 1.0, 2.0))
    output.close()
    assert (tmp_path / "talk.txt").read_text() == "And you\n"


def test_planned_files_and_existing_ones(tmp_path: Path) -> None:
    srt, log = tmp_path / "talk.srt", tmp_path / "talk.jsonl"
    assert plan_outputs([srt, log], "de") == [
        (srt, False), (tmp_path / "talk.de.srt", True), (log, False)
    ]  # fmt: skip
    assert plan_outputs([srt], None) == [(srt, False)]
    (tmp_path / "talk.de.srt").write_text("1\n")
    with pytest.raises(OutputError, match=r"talk\.de\.srt exists already"):
        plan_outputs([srt], "de")
    (tmp_path / "talk.de.srt").write_text("")  # of a session in which nothing was said
    assert plan_outputs([srt], "de")
    with pytest.raises(OutputError, match="is not a folder"):
        plan_outputs([tmp_path / "missing" / "talk.srt"], None)


def test_invalid_outputs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="docx"):
        LiveOutputFile(tmp_path / "talk.docx")
    with pytest.raises(OutputError, match="cannot be written"):
        LiveOutputFile(tmp_path / "missing" / "talk.srt")


@pytest.mark.parametrize(
    ("names", "target", "said"),
    [
        (["m.srt", "m.de.srt"], "de", "m.de.srt is where the translation"),
        (["m.de.srt", "m.srt"], "de", "m.de.srt is where the translation"),
        (["m.srt", "m.srt"], None, "named twice"),
        (["m.srt", "./m.srt"], None, "named twice"),
    ],
)
def test_two_streams_do_not_go_into_one_file(
    names: list[str], target: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        plan_outputs([Path(name) for name in names], target)
