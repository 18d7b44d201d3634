"""Requests of the page about records of the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from edgeapp.history import History, Splice, Summary
from edgeapp.server.page.request_fields import non_negative, text_field
from edgeapp.server.sessions import Message
from edgeapp.server.transcripts import transcript_of
from edgeapp.subtitles.speakers import speaker_of
from pipelines import OptionError, OutputError
from pipelines.subtitles import Timed

__all__ = ["RECORD_REQUESTS"]

_RECORDS_PER_REQUEST = 50
_MAX_SEARCH = _MAX_TITLE = 500  # characters
_MAX_SEARCH_WORDS = 20  # each may read the whole history
_MAX_TEXT = 1_000_000  # characters
# For so long a deleted record can be restored. The page offers it for 12 s.
_UNDO_S = 60.0


def _list_records(message: Message, history: History) -> Message:
    history.empty_trash_soon(_UNDO_S)
    search, offset = text_field(message, "search", _MAX_SEARCH), message.get("offset", 0)
    if len(search.split()) > _MAX_SEARCH_WORDS:
        raise OptionError(f"search for at most {_MAX_SEARCH_WORDS} words at once")
    # One more than is sent tells whether there are more.
    records = history.search(search, _RECORDS_PER_REQUEST + 1, non_negative(offset))
    return {
        "on": history.on,
        "records": [_summary(record) for record in records[:_RECORDS_PER_REQUEST]],
        "more": len(records) > _RECORDS_PER_REQUEST,
    }


def _open_record(message: Message, history: History) -> Message:
    record = history.open(non_negative(message.get("record")))
    if record is None:
        raise OutputError("this record was deleted")
    transcript = record.transcript
    return {
        "record": _summary(record),
        "cues": _cues(transcript.segments),
        "translation": _cues(transcript.translation),
        "text": record.text,
        "translated": record.translation,
    }


def _rename_record(message: Message, history: History) -> Message:
    title = text_field(message, "title", _MAX_TITLE)
    return {"done": history.rename(non_negative(message.get("record")), title)}


def _edit_record(message: Message, history: History) -> Message:
    """Replace the rows of a record that were corrected.

    "counts": how many cues and translated ones the page believes to be stored, or null; "changes":
    a list of {"translated", "at", "removed", "rows"}. If there are other numbers, none is changed,
    and the reply has the "stored" ones.
    """
    record, counts = non_negative(message.get("record")), message.get("counts")
    if counts is not None and not isinstance(counts, list):
        raise OptionError("counts must be a list")
    changes = message.get("changes")
    if not isinstance(changes, list):
        raise OptionError("changes must be a list")
    done = history.splice(record, counts, [_splice(change) for change in changes])
    if isinstance(done, bool):
        return {"done": done}
    stored = done.transcript
    return {
        "done": True,
        "stored": {"cues": _cues(stored.segments), "translation": _cues(stored.translation)},
    }


def _splice(change: Any) -> Splice:
    if not isinstance(change, dict) or not isinstance(rows := change.get("rows"), list):
        raise OptionError("a change needs rows, a list")
    translated = bool(change.get("translated"))
    transcript = transcript_of({"cues": [], "translation": rows} if translated else {"cues": rows})
    at, removed = non_negative(change.get("at")), non_negative(change.get("removed"))
    cues = transcript.translation if translated else transcript.segments
    return Splice(translated, at, removed, tuple(cues))


def _delete_record(message: Message, history: History) -> Message:
    """The reply has the "deleted" records, to be given to "restore"."""
    return {"deleted": history.discard(non_negative(message.get("record")))}


def _clear_history(message: Message, history: History) -> Message:
    return {"deleted": history.discard(None)}


def _restore_records(message: Message, history: History) -> Message:
    records = message.get("records")
    if not isinstance(records, list):
        raise OptionError("records must be a list")
    return {"restored": history.restore([non_negative(record) for record in records])}


def _delete_sound(message: Message, history: History) -> Message:
    return {"done": history.delete_sound(non_negative(message.get("record")))}


def _add_text(message: Message, history: History) -> Message:
    """Store a typed text. "instead": the record of its shorter version, which is deleted."""
    text = text_field(message, "text", _MAX_TEXT)
    translation = text_field(message, "translation", _MAX_TEXT)
    language, target = (text_field(message, name, 20) or None for name in ("language", "target"))
    if (previous := message.get("instead")) is not None:
        history.delete(non_negative(previous))
    return {"record": history.add_text(text, translation, language=language, target=target)}


RECORD_REQUESTS: dict[str, Callable[[Message, History], Message]] = {
    "history": _list_records,
    "record": _open_record,
    "rename": _rename_record,
    "edit": _edit_record,
    "delete": _delete_record,
    "clear": _clear_history,
    "restore": _restore_records,
    "delete_sound": _delete_sound,
    "keep_text": _add_text,
}
"""Handlers by the type of the request."""


def _summary(record: Summary) -> Message:
    return {
        "id": record.id,
        "kind": record.kind,
        "title": record.title,
        "created": record.created.isoformat(),
        "duration_s": round(record.duration_s, 1),
        "language": record.language,
        "target": record.target,
        "model": record.model,
        "sound": record.sound,
        "excerpt": record.excerpt,
    }


def _cues(cues: Sequence[Timed]) -> list[dict[str, Any]]:
    """Cues as messages; "words", "doubts" and "speaker" only where they are known."""
    messages = []
    for cue in cues:
        values: dict[str, Any] = {"start": cue.start, "end": cue.end, "text": cue.text}
        if words := getattr(cue, "words", ()):
            values["words"] = [asdict(word) for word in words]
        if doubts := getattr(cue, "doubts", ()):
            values["doubts"] = doubts
        if speaker := speaker_of(cue):
            values["speaker"] = speaker
        messages.append(values)
    return messages
