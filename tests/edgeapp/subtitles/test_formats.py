"""Subtitle files: the layouts of openai-whisper, which is the oracle here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from edgeapp.subtitles.formats import FORMATS, Cue, Transcript, formats_of, render, stamp
from pipelines.asr import Segment
from pipelines.errors import OptionError


def segment(number: int, start: float, end: float, text: str) -> Segment:
    return Segment(
        id=number, seek=0, start=start, end=end, text=text, tokens=(1, 2), temperature=0.0,
        avg_logprob=-0.25, compression_ratio=1.1, no_speech_prob=0.01,
    )  # fmt: skip


TALK = Transcript(
    "en",
    (
        segment(0, 0.0, 2.5, " Good morning."),
        segment(1, 2.5, 61.004, " It is --> late,\tmy friend."),
        segment(2, 3599.9996, 3725.5, " Größe: 5 €."),
    ),
)


def _without_words(segment: Segment) -> dict[str, object]:
    """A segment of openai-whisper without word timestamps."""
    record = asdict(segment) | {"tokens": list(segment.tokens)}
    del record["words"]
    return record


@pytest.mark.parametrize("fmt", FORMATS)
def test_files_equal_those_of_openai_whisper(fmt: str, tmp_path: Path) -> None:
    utils = pytest.importorskip("whisper.utils")
    result = {
        "text": "".join(s.text for s in TALK.segments),
        "segments": [_without_words(s) for s in TALK.segments],
        "language": "en",
    }
    utils.get_writer(fmt, str(tmp_path))(result, "talk.wav")
    theirs = (tmp_path / f"talk.{fmt}").read_text(encoding="utf-8")
    if fmt == "json":  # theirs spells ü as \\u00fc
        assert json.loads(render(TALK, fmt)) == json.loads(theirs)
    else:
        assert render(TALK, fmt) == theirs


def test_json_holds_the_translation_too() -> None:
    cues = (Cue(0.0, 2.5, "Guten Morgen."),)
    whole = json.loads(render(Transcript("en", TALK.segments, cues, "de"), "json"))
    assert whole["translation"] == {
        "language": "de",
        "text": "Guten Morgen.",
        "segments": [{"start": 0.0, "end": 2.5, "text": "Guten Morgen."}],
    }


def test_the_translation_has_files_of_its_own() -> None:
    cues = (Cue(1.0, 2.5, "Guten Morgen."),)
    srt = render(Transcript("en", TALK.segments, cues, "de"), "srt", translated=True)
    assert srt == "1\n00:00:01,000 --> 00:00:02,500\nGuten Morgen.\n\n"


def test_silence_gives_files_without_cues() -> None:
    silent = Transcript("en", ())
    assert render(silent, "txt") == ""
    assert render(silent, "srt") == ""
    assert render(silent, "vtt") == "WEBVTT\n\n"
    assert json.loads(render(silent, "json"))["segments"] == []


def test_format_names() -> None:
    assert formats_of("all") == FORMATS
    assert formats_of("srt,json,srt") == ("srt", "json")
    with pytest.raises(OptionError, match="docx"):
        formats_of("srt,docx")


def test_hours_come_when_they_are_needed() -> None:
    assert stamp(3599.9996, hours=False, mark=".") == "01:00:00.000"
    assert stamp(59.9994, hours=False, mark=".") == "00:59.999"
    assert stamp(0, hours=True, mark=",") == "00:00:00,000"
