"""Results of the history: Summary, an item of a list, and Record, with all of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from edgeapp.history.journal import Kind, from_microseconds
from edgeapp.history.text_folding import fold_text
from edgeapp.history.word_times import (
    SpokenCue,
    TranslatedCue,
    doubts_from_json,
    words_from_json,
)
from pipelines.subtitles import Transcript

__all__ = ["Record", "Summary", "to_record", "to_summary"]

_EXCERPT_LENGTH = 160  # characters
_CONTEXT_LENGTH = 40  # characters of the excerpt before the word found
_TITLE_LENGTH = 60  # characters


@dataclass(frozen=True)
class Summary:
    """An item of a list of records.

    Attributes:
        id: of the record.
        kind: "live", "file" or "text".
        title: as given, else the beginning of the text.
        created: UTC.
        duration_s: of the recording (s); 0 for texts.
        language: code of the source language, if known.
        target: code of the language translated into, if any.
        model: name of the model, if known.
        sound: whether its recording is kept.
        excerpt: the beginning of the text; in search results, the text around the first word.
    """

    id: int
    kind: Kind
    title: str
    created: datetime
    duration_s: float
    language: str | None
    target: str | None
    model: str | None
    sound: bool
    excerpt: str


@dataclass(frozen=True)
class Record(Summary):
    """A complete record.

    Attributes:
        transcript: for pipelines.subtitles.render; its segments are cues.
        text: all of the text.
        translation: all of the translation; "" without one.
    """

    transcript: Transcript
    text: str
    translation: str


def to_summary(row: Sequence[Any], word: str) -> Summary:
    """Return a summary of a row: columns up to `sound`, the opening, the matching entry or None.

    The excerpt shows the folded word; with "" it is the beginning.
    """
    record, kind, title, created, duration_s, language, target, model, sound, *texts = row
    opening, match = texts
    text = " ".join((match or opening or "").split())
    start = (
        max(0, fold_text(text).find(word) - _CONTEXT_LENGTH) if len(text) > _EXCERPT_LENGTH else 0
    )
    return Summary(
        record, kind, title.strip() or _shorten(" ".join((opening or "").split()), _TITLE_LENGTH),
        from_microseconds(created), duration_s, language, target, model, bool(sound),
        ("… " if start else "") + _shorten(text[start:], _EXCERPT_LENGTH),
    )  # fmt: skip


def _shorten(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1].rstrip()}…"


def to_record(summary: Summary, entries: Sequence[Any]) -> Record:
    """A record from its summary and its entries: (translated, start, end, text, words, speaker)."""
    original, translated_cues = list[SpokenCue](), list[TranslatedCue]()
    for translated, start, end, text, words, speaker in entries:
        times = start or 0.0, end or 0.0
        if translated:
            doubts = doubts_from_json(words)
            translated_cues.append(TranslatedCue(*times, text, doubts, speaker=speaker or ""))
        else:
            original.append(SpokenCue(*times, text, words_from_json(words), speaker=speaker or ""))
    for own in (original, translated_cues):
        if any(cue.speaker for cue in own):  # stored as their sentences ended
            own.sort(key=lambda cue: cue.start)
    if summary.kind == "live":
        # As in transcripts of files, a segment begins with the space before its first word.
        original = [replace(cue, text=f" {cue.text.strip()}") for cue in original]
    if summary.kind == "text":
        text, translation = (
            "".join(cue.text for cue in part) for part in (original, translated_cues)
        )
    else:
        text = "".join(cue.text for cue in original).strip()
        translation = " ".join(cue.text.strip() for cue in translated_cues)
    cues, translated = tuple(original), tuple(translated_cues)
    transcript = Transcript(summary.language or "", cues, translated, summary.target)
    return Record(**asdict(summary), transcript=transcript, text=text, translation=translation)
