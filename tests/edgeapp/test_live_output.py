"""The files that a live session writes are readable at every moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeapp.events import Ended, Status, TranslationPartial
from edgeapp.live_output import LiveOutput
from pipelines.asr.live import Committed, Partial
from pipelines.errors import OptionError, OutputError


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "jsonl"])
def test_output_files_are_readable_at_every_moment(kind: str, tmp_path: Path) -> None:
    output = LiveOutput(tmp_path / f"talk.{kind}")
    output.take(Committed(" I am here.", 0.0, 1.0))
    output.take(Partial(" and"))
    output.take(TranslationPartial("Ich"))
    output.take(Status(1.0, 0.0, 0.1, 0.0, -20.0))
    output.take(Committed(" And you", 1.0, 2.0))
    before = (tmp_path / f"talk.{kind}").read_text()
    output.take(Ended(2.0))
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


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="docx"):
        LiveOutput(tmp_path / "talk.docx")
    with pytest.raises(OutputError, match="cannot be written"):
        LiveOutput(tmp_path / "missing" / "talk.srt")
