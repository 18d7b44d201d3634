"""Requests of the page that are answered at once: picker options, models; and those of the other
files of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeapp.exit_codes import pull_command
from edgeapp.history import History
from edgeapp.model_pool import ModelPool
from edgeapp.process_memory import memory_in_use
from edgeapp.server.page.model_list import download_plan, model_list
from edgeapp.server.page.picker_options import picker_options
from edgeapp.server.page.record_requests import RECORD_REQUESTS
from edgeapp.server.page.request_fields import text_field
from edgeapp.server.page.sentence_requests import SentenceRequests
from edgeapp.server.sessions import Message, Sessions
from pipelines import ModelError, OptionError

__all__ = ["PageApi"]

_MAX_NAME = 200  # characters


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
            "ping": self._ping,
            "models": self._list_models,
            "load": self._load_model,
            "unload": self._unload_model,
            "remove": self._remove_model,
            "plan": self._plan_download,
            **RECORD_REQUESTS,
            **SentenceRequests(pool).handlers,
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
            "limit": self._sessions.places.limit,
            "can_change": self._can_change_models,
        }

    def _ping(self, message: Message, history: History) -> Message:
        progress = self._pool.compile_progress
        if not self._pool.compiling or progress is None:
            return {"compiling": self._pool.compiling}
        return {"compiling": True, "done": progress.done, "total": progress.total}

    def _list_options(self, message: Message, history: History) -> Message:
        options = picker_options(self._pool.settings.model)
        return options.as_message() | {
            "can_change": self._can_change_models,
            "recommended": self._recommended(),
        }

    def _recommended(self) -> Message | None:
        """What the page offers to download, if no recognizer for people's voices is here."""
        from pipelines.hub import (
            RECOMMENDED_RECOGNIZER,
            RECOMMENDED_RECOGNIZER_IN_WORDS,
            free_bytes,
        )

        if not self._pool.lacks_recognizer():
            return None
        return {
            "name": RECOMMENDED_RECOGNIZER,
            "words": RECOMMENDED_RECOGNIZER_IN_WORDS,
            "free": free_bytes(),
            "command": pull_command(RECOMMENDED_RECOGNIZER),
        }

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
        return download_plan(text_field(message, "name", _MAX_NAME))

    def _installed(self, message: Message) -> Message:
        name = text_field(message, "name", _MAX_NAME)
        for model in model_list(self._pool, folders=True):
            if model["name"] == name:
                return model
        raise ModelError(f"{name!r} is not among the models on this machine")
