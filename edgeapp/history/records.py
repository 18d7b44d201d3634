"""What the history gives out: a line of its list, and a whole record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from edgeapp.history.journal import Kind, moment
from edgeapp.history.text_folding import fold_text
from edgeapp.subtitles.formats import Cue, Transcript

__all__ = ["Record", "Summary", "record_of", "summary_of"]

_EXCERPT, _BEFORE = 160, 40  # characters; of them, those before what was found
_TITLE = 60  # characters


@dataclass(frozen=True)
class Summary:
    """A line of the list.

    title: as given, else how the text begins. created: UTC. duration_s: of the recording, 0 for
    text. language, target, model: where they are known. excerpt: how the text begins; in the
    results of a search, a place where its first word was found.
    """

    id: int
    kind: Kind
    title: str
    created: datetime
    duration_s: float
    language: str | None
    target: str | None
    model: str | None
    excerpt: str


@dataclass(frozen=True)
class Record(Summary):
    """All that is kept. transcript: for edgeapp.subtitles.formats.render; its segments are cues.

    text, translation: the whole of both; "" where there is none.
    """

    transcript: Transcript
    text: str
    translation: str


def summary_of(row: Sequence[Any], word: str) -> Summary:
    """From a row of the table, and a word to be shown in its excerpt."""
    record, kind, title, created, duration_s, language, target, model, opening, found = row
    text = " ".join((found or opening or "").split())
    at = max(0, fold_text(text).find(word) - _BEFORE) if len(text) > _EXCERPT else 0
    return Summary(
        record, kind, title.strip() or _shortened(" ".join((opening or "").split()), _TITLE),
        moment(created), duration_s, language, target, model,
        ("… " if at else "") + _shortened(text[at:], _EXCERPT),
    )  # fmt: skip


def _shortened(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1].rstrip()}…"


def record_of(summary: Summary, entries: Sequence[Any]) -> Record:
    """From its line in the list and the rows of its cues."""
    cues: dict[bool, list[Cue]] = {False: [], True: []}
    for translated, start, end, text in entries:
        cues[bool(translated)].append(Cue(start or 0.0, end or 0.0, text))
    said, meant = tuple(cues[False]), tuple(cues[True])
    if summary.kind == "live":
        # As those of a recogniser do, a segment begins with what parts it from the one before.
        said = tuple(Cue(cue.start, cue.end, f" {cue.text.strip()}") for cue in said)
    if summary.kind == "text":
        text, translation = ("".join(cue.text for cue in part) for part in (said, meant))
    else:
        text = "".join(cue.text for cue in said).strip()
        translation = " ".join(cue.text.strip() for cue in meant)
    transcript = Transcript(summary.language or "", said, meant, summary.target)
    return Record(**asdict(summary), transcript=transcript, text=text, translation=translation)
