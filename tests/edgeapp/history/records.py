"""Records that tests write as the page does."""

from __future__ import annotations

from collections.abc import Sequence

from edgeapp.history import History, Splice
from pipelines.subtitles import Timed, Transcript

__all__ = ["add_file", "replace_text"]


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


def replace_text(
    history: History, record: int, cues: Sequence[Timed], translation: Sequence[Timed] = ()
) -> bool:
    """Correct all rows of a record; returns whether it exists."""
    opened = history.open(record)
    said, meant = (
        (opened.transcript.segments, opened.transcript.translation) if opened else ((), ())
    )
    splices = (
        Splice(False, 0, len(said), tuple(cues)),
        Splice(True, 0, len(meant), tuple(translation)),
    )
    return history.splice(record, (len(said), len(meant)), splices) is True
