"""Transcripts as documents for readers: Markdown and DOCX."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from edgeapp.subtitles.passages import Passage, passages
from pipelines.subtitles import Transcript, stamp

__all__ = ["to_docx", "to_markdown"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML cannot hold them
_MARKS = re.compile(r"([\\`*_\[\]<>|~])")
_LINE_MARKS = re.compile(r"^(\s*(?:\d+(?=[.)]))?)([#>+.)-])(?=\s)", re.MULTILINE)


def to_markdown(transcript: Transcript, title: str, which: str = "") -> str:
    """A transcript as Markdown.

    Args:
        transcript: Its translation is quoted below each passage, if `which` is "both".
        title: The heading.
        which: "" for the text, "translated" for the translation, "both".
    """
    lines = [f"# {_escaped(' '.join(title.split()))}", ""] if title.strip() else []
    for time, speaker, text, translation in _paragraphs(transcript, which):
        body = f"**{_escaped(speaker)}:** {_escaped(text)}" if speaker else _escaped(text)
        lines += [f"**{time}** {body}" if time else body, ""]
        if translation:
            lines += [*(f"> {line}" for line in _escaped(translation).splitlines()), ""]
    return "\n".join(lines)


def to_docx(transcript: Transcript, title: str, which: str = "") -> bytes:
    """A transcript as a document of Word.

    Args:
        transcript: With `which` "both", its translation is in italics below each passage.
        title: The heading.
        which: "" for the text, "translated" for the translation, "both".
    """
    from docx import Document
    from docx.shared import RGBColor

    document = Document()
    document.core_properties.title = _clean(title)[:255]
    document.core_properties.author = ""
    if title.strip():
        document.add_heading(_clean(title), 1)
    for time, speaker, text, translation in _paragraphs(transcript, which):
        paragraph = document.add_paragraph()
        if time:
            paragraph.add_run(f"{time}  ").font.color.rgb = RGBColor(0x80, 0x80, 0x80)
        if speaker:
            paragraph.add_run(f"{_clean(speaker)}: ").bold = True
        paragraph.add_run(_clean(text))
        if translation:
            paragraph.add_run().add_break()
            paragraph.add_run(_clean(translation)).italic = True
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _paragraphs(transcript: Transcript, which: str) -> Iterator[tuple[str, str, str, str]]:
    """(time, speaker, text, translation) of each paragraph. A text that was typed has no times."""
    for passage in _chosen(transcript, which):
        text = passage.text if which != "translated" else passage.translation
        translation = passage.translation if which == "both" else ""
        if not text and not translation:
            continue
        typed = not passage.start and not passage.end
        time = "" if typed else stamp(passage.start, hours=False, mark=".").partition(".")[0]
        yield time, passage.speaker, text, translation


def _chosen(transcript: Transcript, which: str) -> Iterator[Passage]:
    if which:
        return passages(transcript)
    return passages(Transcript(transcript.language, transcript.segments))


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.encode("utf-8", "replace").decode())


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return _LINE_MARKS.sub(r"\1\\\2", _MARKS.sub(r"\\\1", text))
