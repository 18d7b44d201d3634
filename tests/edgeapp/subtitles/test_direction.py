"""Lines of right-to-left text are shown right in players that lay out from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from edgeapp.documents.subtitle_file import parse
from edgeapp.documents.subtitle_markup import plain_text
from edgeapp.documents.subtitle_translation import translate_subtitles
from edgeapp.documents.transcript_formats import render
from pipelines import Translation
from pipelines.subtitles import Cue, Transcript, edge_marks, with_marks

_SRT = "1\n00:00:01,000 --> 00:00:03,000\n{}\n\n"


def _translated(content: str, format: str, translation: str) -> str:
    """Return a file in which each passage is translated by the same text."""

    def translate(lines: Iterable[str]) -> Iterator[Translation]:
        yield from (Translation(line, translation) for line in lines)

    *_, rendered = translate_subtitles(parse(content.encode(), format, "film"), translate)
    assert isinstance(rendered, bytes)
    return rendered.decode()


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("שלום.", "שלום.\u200f"),
        ("- שלום", "\u200f- שלום"),
        ("„שלום”", "\u200f„שלום”\u200f"),
        ("בשנת 1999", "בשנת 1999\u200f"),
        ("<i>مرحبا!</i>", "<i>مرحبا!</i>\u200f"),
        ("مرحبًا", "مرحبًا"),
        ("Hello!\nשלום!", "Hello!\nשלום!\u200f"),
        ("Netflix (שלום) and Hello.", "Netflix (שלום) and Hello."),
        ("שלום.\u200f", "שלום.\u200f"),
        ("\u202bשלום.\u202c", "\u202bשלום.\u202c"),
        ("12.", "12."),
    ],
)
def test_srt_and_ass_have_marks_at_neutral_ends(line: str, marked: str) -> None:
    assert with_marks(line, "srt") == with_marks(line, "ass") == marked
    assert with_marks(line, "vtt") == line


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("\u200fשלום.\u200f", ("\u200f", "\u200f")),
        (" \u202bשלום.\u202c ", ("\u202b", "\u202c")),
        ("שלום \u2067abc\u2069", ("", "")),
        ("\u2067abc\u2069 שלום\u200f", ("", "\u200f")),
        ("", ("", "")),
    ],
)
def test_marks_around_a_line_are_told_from_those_of_a_part(
    line: str, marks: tuple[str, str]
) -> None:
    assert edge_marks(line) == marks


def test_transcripts_have_marks_in_srt_and_ass_only() -> None:
    transcript = Transcript("he", (Cue(0.0, 2.0, "שלום."),))
    for format in ("srt", "ass"):
        assert "שלום.\u200f\n" in render(transcript, format)
    for format in ("vtt", "txt", "tsv", "lrc", "csv", "ttml"):
        assert "\u200f" not in render(transcript, format)


def test_translating_twice_gathers_no_marks() -> None:
    once = _translated(_SRT.format("Hello."), "srt", "שלום.")
    assert "\nשלום.\u200f\n" in once
    twice = _translated(once, "srt", "مرحبا.")
    assert "\nمرحبا.\u200f\n" in twice
    assert "\nHello.\n" in _translated(twice, "srt", "Hello.")


def test_lines_keep_the_marks_of_their_source() -> None:
    vtt = "WEBVTT\n\n00:01.000 --> 00:03.000\n<i>\u202bשלום.\u202c</i>\n"
    assert "\u202b<i>مرحبا.</i>\u202c" in _translated(vtt, "vtt", "مرحبا.")
    assert "\n<i>Hello.</i>\n" in _translated(vtt, "vtt", "Hello.")


def test_speakers_are_told_apart_behind_marks() -> None:
    content = _SRT.format("\u200f- שלום.\u200f\n\u200f- להתראות.\u200f")
    translated = _translated(content, "srt", "Hello.")
    assert "\n- Hello.\n- Hello.\n" in translated


def test_marks_are_no_text() -> None:
    assert plain_text("\u200fשלום.\u200f\n\u200f", "srt") == "שלום."
