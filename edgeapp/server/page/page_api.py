"""Requests of the page that are answered at once: picker options, models, history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgeapp.history import History, Summary
from edgeapp.model_pool import ModelPool
from edgeapp.process_memory import memory_in_use
from edgeapp.server.page.model_list import download_plan, model_list
from edgeapp.server.page.picker_options import picker_options
from edgeapp.server.sessions import Message, Sessions
from edgeapp.server.transcripts import transcript_of
from pipelines import ModelError, OptionError, OutputError

__all__ = ["PageApi"]

_RECORDS_PER_REQUEST = 50
_MAX_NAME = 200  # characters
_MAX_SEARCH = _MAX_TITLE = 500  # characters
_MAX_SEARCH_WORDS = 20  # each may read the whole history
_MAX_TEXT = 1_000_000  # characters


class PageApi:
    """Handlers of the page's requests, by their type. Called from any thread.

    Args:
        pool: The shared models.
        sessions: All sessions.
        can_change_models: Whether pages may download and remove models.
    """

    def __init__(self, pool: ModelPool, sessions: Sessions, *, can_change_models: bool) -> None:
        self._pool, self._sessions = pool, sessions
        self._can_change_models = can_change_models
        self._handlers: dict[str, Callable[[Message, History], Message]] = {
            "picker_options": self._list_options,
            "ping": lambda message, history: {"compiling": pool.compiling},
            "models": self._list_models,
            "load": self._load_model,
            "unload": self._unload_model,
            "remove": self._remove_model,
            "plan": self._plan_download,
            "history": self._list_records,
            "record": self._open_record,
            "rename": self._rename_record,
            "edit": self._edit_record,
            "delete": self._delete_record,
            "clear": self._clear_history,
            "keep_text": self._add_text,
        }

    def handles(self, kind: object) -> bool:
        """Whether there is a handler for a type of request."""
        return isinstance(kind, str) and kind in self._handlers

    def reply(self, message: Message, history: History) -> Message:
        """The reply to a request.

        Args:
            message: The request; `handles` is true for its type.
            history: The user's history.

        Raises:
            EdgeError: The request is invalid or failed.
        """
        return self._handlers[message["type"]](message, history)

    def check_can_change_models(self) -> None:
        """Raise OptionError if pages may not download and remove models."""
        if not self._can_change_models:
            raise OptionError(
                "models can be downloaded and removed from another machine "
                "only if this server asks for a login"
            )

    def _list_models(self, message: Message, history: History) -> Message:
        return {
            "models": model_list(self._pool),
            "memory": memory_in_use(),
            "running": self._sessions.running,
            "limit": self._sessions.limit,
            "can_change": self._can_change_models,
        }

    def _list_options(self, message: Message, history: History) -> Message:
        return picker_options().as_message() | {"can_change": self._can_change_models}

    def _load_model(self, message: Message, history: History) -> Message:
        model = self._installed(message)
        self._pool.load(model["name"], model["task"])
        return self._list_models(message, history)

    def _unload_model(self, message: Message, history: History) -> Message:
        self._pool.unload(Path(self._installed(message)["folder"]).resolve())
        return self._list_models(message, history)

    def _remove_model(self, message: Message, history: History) -> Message:
        from pipelines.hub import remove

        self.check_can_change_models()
        model = self._installed(message)
        folder = Path(model["folder"]).resolve()
        if model["loaded"]:
            self._pool.unload(folder)
        remove(model["name"])
        return self._list_models(message, history)

    def _plan_download(self, message: Message, history: History) -> Message:
        self.check_can_change_models()
        return download_plan(_text_field(message, "name", _MAX_NAME))

    def _installed(self, message: Message) -> Message:
        name = _text_field(message, "name", _MAX_NAME)
        for model in model_list(self._pool, folders=True):
            if model["name"] == name:
                return model
        raise ModelError(f"{name!r} is not among the models on this machine")

    def _list_records(self, message: Message, history: History) -> Message:
        search, offset = _text_field(message, "search", _MAX_SEARCH), message.get("offset", 0)
        if len(search.split()) > _MAX_SEARCH_WORDS:
            raise OptionError(f"search for at most {_MAX_SEARCH_WORDS} words at once")
        # One more than is sent tells whether there are more.
        records = history.search(search, _RECORDS_PER_REQUEST + 1, _non_negative(offset))
        return {
            "on": history.on,
            "records": [_summary(record) for record in records[:_RECORDS_PER_REQUEST]],
            "more": len(records) > _RECORDS_PER_REQUEST,
        }

    def _open_record(self, message: Message, history: History) -> Message:
        record = history.open(_non_negative(message.get("record")))
        if record is None:
            raise OutputError("this record was deleted")
        transcript = record.transcript
        return {
            "record": _summary(record),
            "cues": [asdict(cue) for cue in transcript.segments],
            "translation": [asdict(cue) for cue in transcript.translation],
            "text": record.text,
            "translated": record.translation,
        }

    def _rename_record(self, message: Message, history: History) -> Message:
        title = _text_field(message, "title", _MAX_TITLE)
        return {"done": history.rename(_non_negative(message.get("record")), title)}

    def _edit_record(self, message: Message, history: History) -> Message:
        """Replace a record's text by the corrected "cues" and "translation"."""
        record = _non_negative(message.get("record"))
        if not isinstance(message.get("cues"), list):
            raise OptionError("cues must be a list")
        transcript = transcript_of(message)
        return {"done": history.edit(record, transcript.segments, transcript.translation)}

    def _delete_record(self, message: Message, history: History) -> Message:
        return {"done": history.delete(_non_negative(message.get("record")))}

    def _clear_history(self, message: Message, history: History) -> Message:
        history.clear()
        return {"done": True}

    def _add_text(self, message: Message, history: History) -> Message:
        """Store a typed text. "instead": the record of its shorter version, which is deleted."""
        text = _text_field(message, "text", _MAX_TEXT)
        translation = _text_field(message, "translation", _MAX_TEXT)
        language, target = (
            _text_field(message, name, 20) or None for name in ("language", "target")
        )
        if (previous := message.get("instead")) is not None:
            history.delete(_non_negative(previous))
        return {"record": history.add_text(text, translation, language=language, target=target)}


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
        "excerpt": record.excerpt,
    }


def _text_field(message: Message, name: str, max_length: int) -> str:
    value = message.get(name) or ""
    if not isinstance(value, str) or len(value) > max_length:
        raise OptionError(f"{name} must be a text of at most {max_length} characters")
    return value


def _non_negative(value: Any) -> int:
    """A record's id or an offset, within the range of SQLite's integers."""
    if not isinstance(value, int) or not 0 <= value < 2**62:
        raise OptionError(f"{value!r} is not a valid record number")
    return value
