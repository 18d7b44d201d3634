"""Subtitles by word equal openai-whisper's writers."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from typing import Any

import pytest
from whisper.utils import WriteSRT, WriteVTT

from edgeapp.documents.transcript_formats import render
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines.asr import Segment, Word
from pipelines.errors import OptionError
from pipelines.subtitles import Transcript

TEXTS = [
    " The quick brown fox jumps over the lazy dog, and away.",
    " Yes.",
    " Where is the station; it is over there, behind the old house.",
    " One two three.",
]


def spoken() -> list[Segment]:
    segments, at = [], 0.5
    for number, text in enumerate(TEXTS):
        words = []
        for index, word in enumerate(text.split()):
            words.append(Word(" " + word, round(at, 2), round(at + 0.3, 2), 0.9))
            at += 0.3 if index % 3 else 0.45
        segments.append(
            Segment(number, 0, words[0].start, words[-1].end, text, (1,), 0.0, -0.1, 1.0, 0.0,
                    tuple(words))
        )  # fmt: skip
        at += 4.0 if number == 1 else 0.0
    return segments


@pytest.mark.parametrize(
    "options",
    [
        {"max_line_width": 20},
        {"max_line_width": 16, "max_line_count": 2},
        {"max_line_width": 30, "max_line_count": 1, "highlight_words": True},
        {"max_words_per_line": 3},
        {"max_words_per_line": 1},
        {"highlight_words": True},
    ],
)
@pytest.mark.parametrize(("fmt", "writer"), [("srt", WriteSRT), ("vtt", WriteVTT)])
def test_layouts_equal_openai_whisper(options: dict[str, Any], fmt: str, writer: Any) -> None:
    segments = spoken()
    cues = WordCueLayout(**options).cues(segments)
    out = io.StringIO()
    result = {"segments": [asdict(segment) for segment in segments]}
    for segment in result["segments"]:
        segment["words"] = list(segment["words"])
    writer(".").write_result(result, file=out, options={}, **options)
    assert render(Transcript("en", tuple(cues)), fmt) == out.getvalue()


def test_an_arrow_does_not_end_the_timing_line() -> None:
    segment = replace(spoken()[1], words=(Word(" -->", 1.0, 2.0, 0.9),))
    (cue,) = WordCueLayout(highlight_words=True).cues([segment])
    assert "-->" not in cue.text


def test_segments_without_words_stay_as_they_are() -> None:
    segment = Segment(0, 0, 1.0, 2.0, " Hello.", (1,), 0.0, -0.1, 1.0, 0.0)
    (cue,) = WordCueLayout(max_line_width=3).cues([segment])
    assert (cue.start, cue.end, cue.text) == (1.0, 2.0, " Hello.")


@pytest.mark.parametrize(
    "wrong",
    [{"max_line_width": 0}, {"max_line_count": 2}, {"max_line_width": 9, "max_words_per_line": 2}],
)
def test_invalid_layouts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        WordCueLayout(**wrong)
