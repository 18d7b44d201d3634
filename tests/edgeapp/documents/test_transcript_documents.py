"""Transcripts as Markdown and DOCX."""

from __future__ import annotations

import io

import pytest

from edgeapp.documents.transcript_documents import to_docx, to_markdown
from pipelines.subtitles import Cue, Transcript

TALK = Transcript(
    "en",
    (Cue(0, 2, " Good morning."), Cue(3661, 3665, " Use *args or # 1_2.")),
    (Cue(0, 2, "Guten Morgen."), Cue(3661, 3665, "Nimm *args.")),
    "de",
)


def docx_paragraphs(content: bytes) -> list[str]:
    from docx import Document

    return [paragraph.text for paragraph in Document(io.BytesIO(content)).paragraphs]


def test_markdown_in_both_languages() -> None:
    assert to_markdown(TALK, "A *talk*\n", "both") == (
        "# A \\*talk\\*\n\n**00:00** Good morning.\n\n> Guten Morgen.\n\n"
        "**01:01:01** Use \\*args or # 1\\_2.\n\n> Nimm \\*args.\n"
    )


@pytest.mark.parametrize(
    ("which", "first"), [("", "Good morning."), ("translated", "Guten Morgen.")]
)
def test_one_language(which: str, first: str) -> None:
    assert to_markdown(TALK, "", which).splitlines()[0] == f"**00:00** {first}"
    assert docx_paragraphs(to_docx(TALK, "Talk", which))[:2] == ["Talk", f"00:00  {first}"]


def test_a_document_in_both_languages() -> None:
    content = to_docx(TALK, "A talk", "both")
    assert docx_paragraphs(content)[1] == "00:00  Good morning.\nGuten Morgen."


def test_a_typed_text_has_no_times_and_keeps_what_markdown_would_take_for_marks() -> None:
    text = Transcript("en", (Cue(0, 0, "# not a heading\n- no list\n1. one"),))
    assert to_markdown(text, "") == "\\# not a heading\n\\- no list\n1\\. one\n"
    assert docx_paragraphs(to_docx(text, "")) == ["# not a heading\n- no list\n1. one"]


def test_characters_that_xml_cannot_hold_are_left_out() -> None:
    assert docx_paragraphs(to_docx(Transcript("en", (Cue(0, 1, "a\x00b\x1f\ud800c"),)), "\x01T"))
