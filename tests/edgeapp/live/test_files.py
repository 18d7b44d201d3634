"""Output files of a live session are valid after every write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgeapp.live.events import (
    AudioLost,
    SessionEnded,
    Status,
    TranslationFinal,
    TranslationPartial,
)
from edgeapp.live.files import LiveOutputFile, last_time, plan_outputs
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


def test_a_translation_of_what_was_said_before_a_long_gap_has_valid_times(tmp_path: Path) -> None:
    output = LiveOutputFile(tmp_path / "talk.de.srt", translated=True)
    output.write(AudioLost(10.0, 1000.0, "the computer slept"))
    output.write(TranslationFinal("Guten Tag.", 1.0, 2.0, "Good day."))
    output.write(TranslationFinal("Ja.", 1001.0, 1002.0, "Yes."))
    output.close()
    assert output.path != tmp_path / "talk.de.srt"
    assert output.path.read_text() == (
        "1\n00:00:00,000 --> 00:00:00,000\nGuten Tag.\n\n2\n00:00:01,000 --> 00:00:02,000\nJa.\n\n"
    )


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


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "jsonl"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_file_is_continued(kind: str, is_cut: bool, tmp_path: Path) -> None:
    """Numbers and times go on; those of the translation with the transcript's.

    Events of each session have its own times.
    """
    talk, german = tmp_path / f"talk.{kind}", tmp_path / f"talk.de.{kind}"
    for name, start in (("one", None), ("two", 3_605.5)):
        at = last_time([talk, german]) if start is not None else None
        if start is not None and kind in ("srt", "vtt"):
            assert at == start
        files = [LiveOutputFile(talk, append_at=at)]
        if kind != "jsonl":
            files.append(LiveOutputFile(german, translated=True, append_at=at))
        for output in files:
            output.write(CommittedText(f" I am {name}.", 3_604.0, 3_605.5))
            output.write(TranslationFinal(f"Ich bin {name}.", 3_604.0, 3_605.0, ""))
            output.write(SessionEnded(3_606.0))
            output.close()
            if is_cut and start is None:
                output.path.write_text(output.path.read_text().rstrip("\n"))
    text = talk.read_text()
    if kind == "srt":
        assert text == (
            "1\n01:00:04,000 --> 01:00:05,500\nI am one.\n\n"
            "2\n02:00:09,500 --> 02:00:11,000\nI am two.\n\n"
        )
        assert german.read_text().endswith("\n\n2\n02:00:09,500 --> 02:00:10,500\nIch bin two.\n\n")
    if kind == "vtt":
        assert text.count("WEBVTT") == 1
        assert "\n\n02:00:09.500 --> 02:00:11.000\nI am two.\n\n" in text
    if kind == "txt":
        assert text == "I am one.\nI am two.\n"
    if kind == "jsonl":
        events = [json.loads(line) for line in text.splitlines()]
        assert [event["type"] for event in events] == ["committed", "translation_final", "end"] * 2
        assert [event.get("start") for event in events] == [3_604.0, 3_604.0, None] * 2


def test_existing_files_are_continued_only_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "talk.srt").write_text("1\n")
    with pytest.raises(OutputError, match=r"talk\.srt exists already: --append goes on in it"):
        plan_outputs([tmp_path / "talk.srt"], None)
    assert plan_outputs([tmp_path / "talk.srt"], None, append=True)
    (tmp_path / "folder.srt").mkdir()
    with pytest.raises(OutputError, match=r"folder\.srt cannot be written: it is a folder"):
        plan_outputs([tmp_path / "folder.srt"], None, append=True)


def test_a_folder_that_cannot_be_written_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match=r"talk\.srt cannot be written: Permission denied"):
        plan_outputs([tmp_path / "talk.srt"], None)


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
