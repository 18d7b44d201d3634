"""What tasks have in common that get all they need at their start."""

from __future__ import annotations

import threading
from pathlib import Path

from edgeapp.server.sessions import TaskCancelled

__all__ = ["CancellableTask", "UploadTask"]


class CancellableTask:
    """A task without sound, which can only be cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def put_audio(self, audio: bytes) -> None:
        """Ignored: the task takes no sound."""

    def stop(self) -> None:
        """As `cancel`."""
        self.cancel()

    def cancel(self) -> None:
        """End the task where it checks next."""
        self._cancelled.set()

    def check(self) -> None:
        """Go on, unless the task was cancelled.

        Raises:
            TaskCancelled: It was.
        """
        if self._cancelled.is_set():
            raise TaskCancelled


class UploadTask(CancellableTask):
    """A task on an uploaded file, which it owns.

    Args:
        path: The file. `cancel` deletes it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def cancel(self) -> None:
        super().cancel()
        self._path.unlink(missing_ok=True)
