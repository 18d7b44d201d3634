"""Speakers of a conversation in every format."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from edgeapp.documents.transcript_documents import to_docx, to_markdown
from edgeapp.documents.transcript_formats import ALL, render
from edgeapp.server.transcripts import render_message
from edgeapp.subtitles.shaping import shaped
from pipelines.subtitles import Cue, Transcript

SAID = (
    Cue(0.0, 4.0, " Can you hear me?", speaker="Me"),
    Cue(1.0, 2.0, " Yes, I can.", speaker="Them"),
    Cue(5.0, 6.0, " Good."),
)
MEANT = (
    Cue(1.0, 2.0, "Ja.", speaker="Them"),
    Cue(0.0, 4.0, "Hörst du mich?", speaker="Me"),
)
TALK = Transcript("en", SAID, MEANT, "de")


def test_every_format_names_the_speakers() -> None:
    for fmt in (*ALL, "ass", "ttml"):
        content = render(TALK, fmt)
        assert "Me" in content, fmt
        assert "Them" in content, fmt
    assert render(TALK, "txt") == "Me: Can you hear me?\nThem: Yes, I can.\nGood.\n"
    assert "<v Them>Yes, I can.\n" in render(TALK, "vtt")
    named = replace(SAID[0], speaker="A <b> & C")
    assert "<v A b  C>Can" in render(Transcript("en", (named,)), "vtt")
    assert [each.get("speaker") for each in json.loads(render(TALK, "json"))["segments"]] == [
        "Me", "Them", None,
    ]  # fmt: skip
    assert "Them: Ja.\nMe: Hörst" in render(TALK, "txt", which="translated")


def test_cues_of_two_speakers_are_shaped_apart() -> None:
    long = " ".join(["Something that goes on and on."] * 4)
    talk = Transcript("en", (Cue(0.0, 12.0, f" {long}", speaker="Me"), SAID[1]))
    cues = shaped(talk).segments
    mine = [cue for cue in cues if isinstance(cue, Cue) and cue.speaker == "Me"]
    assert " ".join(" ".join(cue.text.split()) for cue in mine) == long
    assert [cue.start for cue in cues] == sorted(cue.start for cue in cues)
    assert (cues[1].text, cues[1].start) == ("Yes, I can.", 1.0)
    assert max(map(len, render(shaped(talk), "srt").splitlines())) <= 42


def test_documents_and_the_page_name_the_speakers() -> None:
    from docx import Document

    both = to_markdown(TALK, "Talk", "both")
    assert "**00:00** **Me:** Can you hear me?\n\n> Hörst du mich?\n" in both
    assert "**00:01** **Them:** Yes, I can.\n\n> Ja.\n" in both
    paragraphs = Document(io.BytesIO(to_docx(TALK, "Talk"))).paragraphs
    assert "Them: Yes, I can." in paragraphs[2].text
    cue = {"start": 0, "end": 1, "text": " Hi.", "speaker": "Anna"}
    message = {"format": "srt", "language": "en", "cues": [cue]}
    assert b"\nAnna: Hi.\n" in render_message(json.dumps(message).encode())
