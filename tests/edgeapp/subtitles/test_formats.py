"""Subtitle files: the layouts of openai-whisper, which is the oracle here."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pysubs2 import SSAFile

from edgeapp.documents.transcript_formats import ALL, FORMATS, formats_of, render
from edgeapp.subtitles.shaping import TimedWord, shape_with_words
from pipelines.asr import Segment, Word
from pipelines.errors import OptionError
from pipelines.subtitles import Cue, Transcript, karaoke, stamp


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
    """A segment of openai-whisper without word timestamps; it knows nothing of the others."""
    record = asdict(segment) | {"tokens": list(segment.tokens)}
    del record["words"], record["alternatives"], record["token_logprobs"]
    return record


@pytest.mark.parametrize("fmt", ["txt", "vtt", "srt", "tsv", "json"])
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


def test_lyrics_and_tables_are_as_whisper_cpp_writes_them() -> None:
    talk = Transcript("en", (*TALK.segments, segment(3, 3726, 3727, ' He said "No,\nno", twice.')))
    assert render(talk, "lrc") == (
        "[00:00.00]Good morning.\n"
        "[00:02.50]It is -> late, my friend.\n"
        "[60:00.00]Größe: 5 €.\n"
        '[62:06.00]He said "No, no", twice.\n'
    )
    table = render(talk, "csv")
    assert table.startswith('start,end,text\n0,2500,"Good morning."\n')
    rows = list(csv.reader(io.StringIO(table)))
    assert rows[-1] == ["3726000", "3727000", 'He said "No,\nno", twice.']
    assert render(Transcript("en", ()), "lrc") == ""
    assert render(Transcript("en", ()), "csv") == "start,end,text\n"


def test_json_can_be_indented() -> None:
    assert json.loads(render(TALK, "json", pretty=True)) == json.loads(render(TALK, "json"))
    assert render(TALK, "json", pretty=True).startswith('{\n    "text"')


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
    srt = render(Transcript("en", TALK.segments, cues, "de"), "srt", which="translated")
    assert srt == "1\n00:00:01,000 --> 00:00:02,500\nGuten Morgen.\n\n"


def test_silence_gives_files_without_cues() -> None:
    silent = Transcript("en", ())
    assert render(silent, "txt") == ""
    assert render(silent, "srt") == ""
    assert render(silent, "vtt") == "WEBVTT\n\n"
    assert json.loads(render(silent, "json"))["segments"] == []


def test_format_names() -> None:
    assert formats_of("all") == formats_of("ALL") == ALL
    assert formats_of("ass,all") == ("ass", *ALL)
    assert formats_of("srt,json,SRT") == ("srt", "json")
    with pytest.raises(OptionError, match="'odt' is not one of txt, .*, docx"):
        formats_of("srt,odt")


SPOKEN = (
    replace(TALK.segments[0], words=(Word(" Good", 0.0, 0.5, 0.75), Word(" morning.", 0.5, 1, 1))),
    Cue(2.0, 4.0, "Once more"),
)


def test_words_have_a_table_of_their_own() -> None:
    """Where no time of a word is known, it is estimated, without a probability."""
    assert render(Transcript("en", SPOKEN), "words.tsv") == (
        "start\tend\tword\tprobability\n"
        "0\t500\tGood\t0.750\n"
        "500\t1000\tmorning.\t1.000\n"
        "2000\t3000\tOnce\t\n"
        "3000\t4000\tmore\t\n"
    )


def test_words_are_written_for_tools_that_score_recognition() -> None:
    assert render(Transcript("en", SPOKEN), "ctm", title="my talk 1.5").splitlines() == [
        "my_talk_1.5 1 0.00 0.50 Good 0.750",
        "my_talk_1.5 1 0.50 0.50 morning. 1.000",
        "my_talk_1.5 1 2.00 1.00 Once",
        "my_talk_1.5 1 3.00 1.00 more",
    ]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_format_writes_an_empty_transcript_too(fmt: str) -> None:
    content = render(Transcript("en", ()), fmt, title="talk")
    assert isinstance(content, bytes) == FORMATS[fmt].is_binary


@pytest.mark.parametrize("fmt", [name for name, form in FORMATS.items() if form.is_subtitle])
def test_subtitles_may_have_both_languages(fmt: str) -> None:
    cues = (Cue(0.0, 2.5, "Guten Morgen."),)
    both = render(Transcript("en", TALK.segments[:1], cues, "de"), fmt, which="both")
    assert str(both).index("Good morning.") < str(both).index("Guten Morgen.")


def test_hours_come_when_they_are_needed() -> None:
    assert stamp(3599.9996, hours=False, mark=".") == "01:00:00.000"
    assert stamp(59.9994, hours=False, mark=".") == "00:59.999"
    assert stamp(0, hours=True, mark=",") == "00:00:00,000"


@pytest.mark.parametrize("fmt", ["ass", "ttml"])
def test_pysubs2_reads_what_is_written(fmt: str) -> None:
    cues = (*TALK.segments, Cue(3726, 3727, "Two {lines}\nand a \\N"))
    read = SSAFile.from_string(render(Transcript("en", cues), fmt))
    assert [(event.start, event.end) for event in read][1:] == [
        (2500, 61000 if fmt == "ass" else 61004), (3600000, 3725500), (3726000, 3727000),
    ]  # fmt: skip
    texts = [event.plaintext.replace("\u2060", "") for event in read]
    assert texts[2:] == ["Größe: 5 €.", "Two (lines)\nand a \\N"]


def test_ass_has_times_beyond_ten_hours_as_players_read_them() -> None:
    cues = (Cue(36603.54, 36604, "One."), Cue(3600 * 1000, 3600 * 1000 + 1.5, "Two."))
    lines = render(Transcript("en", cues), "ass").splitlines()[-2:]
    assert lines == [
        "Dialogue: 0,10:10:03.54,10:10:04.00,Default,,0,0,0,,One.",
        "Dialogue: 0,1000:00:00.00,1000:00:01.50,Default,,0,0,0,,Two.",
    ]


def test_karaoke_has_the_times_of_the_words() -> None:
    words = [
        TimedWord(text, start, end)
        for text, start, end in (
            (" Now", 1.0, 1.25), (" {is}", 1.25, 1.5), (" the", 2.0, 2.1), (" winter", 2.1, 2.555),
            (" of", 2.6, 2.7), (" our", 2.7, 3.0), (" discontent,", 3.0, 3.9), (" made", 3.9, 4.1),
        )
    ]  # fmt: skip
    (event,) = SSAFile.from_string(karaoke(shape_with_words(words)))
    assert event.plaintext.split() == "Now (is) the winter of our discontent, made".split()
    assert event.plaintext.count("\n") == 1
    spoken = re.findall(r"\{\\k(\d+)\}(\w*)", event.text)
    assert [int(length) for length, _ in spoken] == [25, 25, 50, 10, 46, 4, 10, 30, 90, 20]
    assert [word for _, word in spoken if word][:2] == ["Now", "the"]
    assert event.start == 1000
