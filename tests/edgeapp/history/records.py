"""Records that tests write as the page does."""

from __future__ import annotations

from edgeapp.history import History
from edgeapp.subtitles.formats import Transcript

__all__ = ["add_file"]


def add_file(
    history: History, transcript: Transcript, title: str, duration_s: float, model: str = ""
) -> int:
    """Write the transcript of a recording; returns the id of the record."""
    languages = {"language": transcript.language, "target": transcript.translation_language}
    with history.recording("file", title=title, model=model or None, **languages) as journal:
        journal.describe(duration_s=duration_s)
        journal.extend(transcript.segments, transcript.translation)
    assert journal.id is not None
    return journal.id
