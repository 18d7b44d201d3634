"""Download of a model, with its progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edgeapp.server.tasks.cancellable_task import CancellableTask

if TYPE_CHECKING:
    from edgeapp.server.sessions import Send
    from pipelines.hub import PullProgress

__all__ = ["PullTask"]

_PROGRESS_EVERY_S = 0.2


class PullTask(CancellableTask):
    """Downloads a model by name. A cancelled download is resumed by the next one."""

    kind = "pull"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._reported_at = 0.0  # time.monotonic()

    def run(self, send: Send) -> None:
        from pipelines.hub import pull

        def report(state: PullProgress) -> None:
            self.check()
            now = time.monotonic()
            if now - self._reported_at > _PROGRESS_EVERY_S:
                self._reported_at = now
                progress = {"done": state.done_bytes, "total": state.total_bytes}
                send({"type": "pull_progress", "name": self._name, **progress})

        model = pull(self._name, report)
        send({"type": "pull_done", "name": model.name, "note": model.note})
