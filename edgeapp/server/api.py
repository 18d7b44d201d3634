"""What a page asks for and gets at once: its choices, models, the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgeapp.history import History, Summary
from edgeapp.process_memory import memory_in_use
from edgeapp.server.model_list import download_plan, model_list
from edgeapp.server.picker_options import picker_options
from edgeapp.server.sessions import Message, Sessions
from edgeapp.server.shared_models import SharedModelPool
from pipelines import ModelError, OptionError, OutputError

__all__ = ["PageApi"]

_PAGE = 50  # records that are listed at a time


class PageApi:
    """Answers; any thread may ask. changing: whether pages may download and remove models."""

    def __init__(self, pool: SharedModelPool, sessions: Sessions, *, changing: bool) -> None:
        self._pool, self._sessions, self._changing = pool, sessions, changing
        self._answers: dict[str, Callable[[Message, History], Message]] = {
            "picker_options": lambda message, history: picker_options().as_message(),
            "models": self._models,
            "load": self._load,
            "unload": self._unload,
            "remove": self._remove,
            "plan": self._plan,
            "history": self._list,
            "record": self._record,
            "rename": self._rename,
            "delete": self._delete,
            "clear": self._clear,
            "keep_text": self._keep_text,
        }

    def answers(self, kind: object) -> bool:
        """Whether that is a question for here."""
        return kind in self._answers

    def answer(self, message: Message, history: History) -> Message:
        """Raises EdgeError. history: of whoever asks."""
        return self._answers[message["type"]](message, history)

    def check_changing(self) -> None:
        """Raises OptionError where a page must leave this machine's models alone."""
        if not self._changing:
            raise OptionError(
                "models are downloaded and removed by those who log in (--auth), or on this machine"
            )

    def _models(self, message: Message, history: History) -> Message:
        return {
            "models": model_list(self._pool),
            "memory": memory_in_use(),
            "running": self._sessions.running,
            "most": self._sessions.most,
            "changing": self._changing,
        }

    def _load(self, message: Message, history: History) -> Message:
        found = self._listed(message)
        self._pool.load(found["name"], found["task"])
        return self._models(message, history)

    def _unload(self, message: Message, history: History) -> Message:
        self._pool.unload(Path(self._listed(message)["folder"]).resolve())
        return self._models(message, history)

    def _remove(self, message: Message, history: History) -> Message:
        from pipelines.hub import remove

        self.check_changing()
        found = self._listed(message)
        folder = Path(found["folder"]).resolve()
        if found["loaded"]:
            self._pool.unload(folder)
        remove(found["name"])
        return self._models(message, history)

    def _plan(self, message: Message, history: History) -> Message:
        self.check_changing()
        return download_plan(_text(message, "name", 200))

    def _listed(self, message: Message) -> Message:
        name = _text(message, "name", 200)
        for model in model_list(self._pool, folders=True):
            if model["name"] == name:
                return model
        raise ModelError(f"{name!r} is not among the models on this machine")

    def _list(self, message: Message, history: History) -> Message:
        search, offset = _text(message, "search", 500), _whole(message.get("offset", 0))
        found = history.search(search, _PAGE + 1, offset)
        records = [_shown(one) for one in found[:_PAGE]]
        return {"on": history.on, "records": records, "more": len(found) > _PAGE}

    def _record(self, message: Message, history: History) -> Message:
        record = history.open(_whole(message.get("record")))
        if record is None:
            raise OutputError("this record is not there any more")
        transcript = record.transcript
        return {
            "record": _shown(record),
            "cues": [asdict(cue) for cue in transcript.segments],
            "translation": [asdict(cue) for cue in transcript.translation],
            "text": record.text,
            "translated": record.translation,
        }

    def _rename(self, message: Message, history: History) -> Message:
        done = history.rename(_whole(message.get("record")), _text(message, "title", 500))
        return {"done": done}

    def _delete(self, message: Message, history: History) -> Message:
        return {"done": history.delete(_whole(message.get("record")))}

    def _clear(self, message: Message, history: History) -> Message:
        history.clear()
        return {"done": True}

    def _keep_text(self, message: Message, history: History) -> Message:
        """A text that was typed; instead: the record of what it was before it grew."""
        longest = 1_000_000
        text, translation = (_text(message, name, longest) for name in ("text", "translation"))
        language, target = (_text(message, name, 20) or None for name in ("language", "target"))
        if (before := message.get("instead")) is not None:
            history.delete(_whole(before))
        return {"record": history.add_text(text, translation, language=language, target=target)}


def _shown(record: Summary) -> Message:
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


def _text(message: Message, name: str, longest: int) -> str:
    value = message.get(name) or ""
    if not isinstance(value, str) or len(value) > longest:
        raise OptionError(f"{name} is no text of at most {longest} characters")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**62:
        raise OptionError(f"{value!r} is no number of a record")
    return value
