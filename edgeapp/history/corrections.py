"""Corrections of a record: the rows of its text that have changed, in place of earlier ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from edgeapp.history.journal import Entry, entry_of, insert_entry
from edgeapp.history.text_folding import fold_text
from pipelines.subtitles import Timed

__all__ = ["Row", "Splice", "rewrite", "spliced", "stored_rows"]

Row = tuple[int, Entry]
"""The id of a cue, and the cue as it is stored."""


@dataclass(frozen=True)
class Splice:
    """Cues that take the place of others.

    Attributes:
        translated: They belong to the translation, else to the text.
        at: Index of the first one that is replaced.
        removed: The number of those that are replaced.
        cues: The new ones.
    """

    translated: bool
    at: int
    removed: int
    cues: tuple[Timed, ...]


def stored_rows(db: sqlite3.Connection, record: int) -> tuple[list[Row], list[Row]]:
    """The rows of a record's text and of its translation, in the order in which it is shown."""
    rows: tuple[list[Row], list[Row]] = ([], [])
    found = db.execute(
        "SELECT id, translated, start, end, text, words, speaker FROM entries WHERE record = ? "
        "ORDER BY id",
        (record,),
    )
    for row, translated, *cue in found:
        start, end, text, words, speaker = cue
        rows[bool(translated)].append((row, (bool(translated), start, end, text, words, speaker)))
    for own in rows:
        if any(entry[-1] for _, entry in own):  # as in to_record
            own.sort(key=lambda row: row[1][1] or 0.0)
    return rows


def spliced(rows: Sequence[Row], splices: Sequence[Splice], *, translated: bool) -> list[Entry]:
    """The entries of a text or translation after splices, one after the other. New cues without
    text are left out."""
    entries = [entry for _, entry in rows]
    for splice in splices:
        if splice.translated == translated:
            new = [entry_of(cue, translated=translated) for cue in splice.cues if cue.text.strip()]
            entries[splice.at : splice.at + splice.removed] = new
    return entries


def rewrite(
    db: sqlite3.Connection, record: int, rows: Sequence[Row], entries: Sequence[Entry]
) -> None:
    """Make the rows of a text or translation the entries, in the caller's transaction. Rows that
    are the same stay as they are."""
    former = [entry for _, entry in rows]
    begin, most = 0, min(len(former), len(entries))
    while begin < most and former[begin] == entries[begin]:
        begin += 1
    same = 0  # at the end. Where there are more entries, the ids of the rows behind move up.
    if len(entries) <= len(former):
        while same < most - begin and former[-1 - same] == entries[-1 - same]:
            same += 1
    changed = rows[begin : len(rows) - same]
    new = entries[begin : len(entries) - same]
    for (row, old), entry in zip(changed, new, strict=False):
        if old != entry:
            _, start, end, text, words, speaker = entry
            db.execute(
                "UPDATE entries SET start = ?, end = ?, text = ?, plain = ?, words = ?, "
                "speaker = ? WHERE id = ?",
                (start, end, text, fold_text(text), words, speaker, row),
            )
    for row, _ in changed[len(new) :]:
        db.execute("DELETE FROM entries WHERE id = ?", (row,))
    for entry in new[len(changed) :]:
        insert_entry(db, record, entry)
