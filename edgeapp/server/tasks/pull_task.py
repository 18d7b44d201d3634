"""A download of a model, with its progress told to the page."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from edgeapp.server.sessions import SessionAbandoned

if TYPE_CHECKING:
    from edgeapp.server.sessions import Send
    from pipelines.hub import PullProgress

__all__ = ["PullTask"]

_TELL_EVERY_S = 0.2


class PullTask:
    """What was downloaded when it is cancelled stays: a later one goes on from there."""

    kind = "pull"

    def __init__(self, name: str) -> None:
        self._name = name
        self._abandoned = threading.Event()
        self._told = 0.0

    def run(self, send: Send) -> None:
        from pipelines.hub import pull

        def tell(state: PullProgress) -> None:
            if self._abandoned.is_set():
                raise SessionAbandoned
            now = time.monotonic()
            if now - self._told > _TELL_EVERY_S:
                self._told = now
                done = {"done": state.done_bytes, "total": state.total_bytes}
                send({"type": "pull_progress", "name": self._name, **done})

        found = pull(self._name, tell)
        send({"type": "pull_done", "name": found.name, "note": found.note})

    def take(self, audio: bytes) -> None:
        """A download has no audio."""

    def stop(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._abandoned.set()
