"""The download of a model that a page has asked for. It belongs to the server: it goes on when the
tab that began it is closed, and all pages see how far it is."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from pipelines import EdgeError, OptionError

if TYPE_CHECKING:
    from edgeapp.server.sessions import Message, Send
    from pipelines.hub import PullProgress

__all__ = ["Downloads"]

_PROGRESS_EVERY_S = 0.2
_END_S = 10.0  # for a download that ends with the server


class _Cancelled(Exception):
    """Ends a download; the next one resumes it."""


class Downloads:
    """At most one download at a time, and the pages that see it.

    Its messages have the type "download", the model's name, and a state: "running" with the bytes
    that are "done" and the "total", "done" with a "note", "failed" with a "message", or
    "cancelled".
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: list[Send] = []
        self._running: Message | None = None  # the latest message about it
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()

    def join(self, send: Send, hello: Message) -> None:
        """Send to a page a first message, with the latest one about the download that is running
        (or None) as its "download", and then what comes."""
        with self._lock:  # so that the end of the download cannot come before the first message
            send(hello | {"download": self._running})
            self._pages.append(send)

    def leave(self, send: Send) -> None:
        """Send no more to a page."""
        with self._lock:
            self._pages.remove(send)

    def begin(self, name: str) -> None:
        """Begin to download a model; do nothing if it is being downloaded already.

        Raises:
            OptionError: Another model is being downloaded.
        """
        with self._lock:
            if self._running is not None:
                running = self._running["name"]
                if running == name:
                    return
                raise OptionError(f"{running} is being downloaded: wait for its end, or cancel it")
            self._cancelled = threading.Event()
            self._tell(_running(name, 0, 0))
            self._thread = threading.Thread(
                target=self._run, args=(name, self._cancelled), name="download", daemon=True
            )
            self._thread.start()

    def cancel(self) -> None:
        """End the download, if there is one. The next one of this model resumes it."""
        self._cancelled.set()

    def close(self) -> None:
        """End the download, and wait for its end."""
        self.cancel()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run(self, name: str, cancelled: threading.Event) -> None:
        from pipelines.hub import pull

        reported_at = 0.0

        def report(state: PullProgress) -> None:
            nonlocal reported_at
            if cancelled.is_set():
                raise _Cancelled
            now = time.monotonic()
            if now - reported_at > _PROGRESS_EVERY_S:
                reported_at = now
                with self._lock:
                    self._tell(_running(name, state.done_bytes, state.total_bytes))

        end: Message = {"type": "download", "name": name}
        try:
            model = pull(name, report)
            end |= {"state": "done", "name": model.name, "note": model.note}
        except _Cancelled:
            end["state"] = "cancelled"
        except EdgeError as error:
            end |= {"state": "failed", "message": str(error)}
        except Exception as error:  # without an end, no other download could begin
            print_traceback(error)
            end |= {"state": "failed", "message": unexpected(error)}
        with self._lock:
            self._tell(end)

    def _tell(self, message: Message) -> None:
        """Send a message to all pages. The lock is held."""
        self._running = message if message["state"] == "running" else None
        for send in self._pages:
            send(message)


def _running(name: str, done: int, total: int) -> Message:
    return {"type": "download", "state": "running", "name": name, "done": done, "total": total}
