"""Sessions: one for each browser tab, with its running tasks, and a limit for all of them."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from edgeapp.exit_codes import unexpected
from pipelines import EdgeError, OptionError

__all__ = ["Message", "Send", "Session", "Sessions", "Task", "TaskCancelled", "TooManySessions"]

Message = dict[str, Any]  # a JSON object with a "type"
Send = Callable[[Message], None]

_TASK_NAMES = {
    "live": "live captions", "file": "a recording", "text": "a translation", "pull": "a download",
}  # fmt: skip


class TooManySessions(EdgeError):
    """The server's limit of running sessions is reached."""


class TaskCancelled(Exception):
    """Raised inside a task that was cancelled."""


class Task(Protocol):
    """A piece of work for a tab, in a thread of its own: captions, a file, a text, a download.

    Attributes:
        kind: "live", "file", "text" or "pull".
    """

    kind: str

    def run(self, send: Send) -> None:
        """Work until the end.

        Args:
            send: Sends a message to the tab.

        Raises:
            TaskCancelled: The task was cancelled.
            EdgeError: The task failed.
        """
        ...

    def put_audio(self, audio: bytes) -> None:
        """Append audio from the browser. From any thread."""
        ...

    def stop(self) -> None:
        """End the input; what has arrived is still processed. From any thread."""
        ...

    def cancel(self) -> None:
        """Discard the task's remaining work. From any thread."""
        ...


class Sessions:
    """All open sessions.

    Args:
        limit: The number of sessions that may have running tasks at the same time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._running: set[Session] = set()

    @property
    def running(self) -> int:
        """The number of sessions with a running task."""
        return len(self._running)

    def acquire(self, session: Session) -> None:
        """Count a session as running, if it is not yet.

        Raises:
            TooManySessions: The limit is reached.
        """
        with self._lock:
            if session not in self._running and len(self._running) >= self.limit:
                sessions = "1 session runs" if self.limit == 1 else f"{self.limit} sessions run"
                raise TooManySessions(
                    f"this machine is busy: {sessions} on it already. Try again when one has ended."
                )
            self._running.add(session)

    def release(self, session: Session) -> None:
        """Count a session as idle."""
        with self._lock:
            self._running.discard(session)

    def close(self) -> None:
        """Close all running sessions."""
        with self._lock:
            running = list(self._running)
        for session in running:
            session.close()


class Session:
    """The tasks of one tab: at most one of each kind, each in a thread of its own.

    Args:
        sessions: All sessions of the server.
        send: Sends a message to the tab; called from any thread.
    """

    def __init__(self, sessions: Sessions, send: Send) -> None:
        self._sessions, self._send = sessions, send
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}  # by kind
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, task: Task, *, replace: bool = False) -> None:
        """Run a task. A closed session cancels it instead.

        Args:
            task: The task.
            replace: Cancel a running task of the same kind.

        Raises:
            TooManySessions: The server's limit is reached.
            OptionError: A task of this kind is running, and `replace` is False.
        """
        with self._lock:
            previous, closed = self._tasks.get(task.kind), self._closed
            if not closed:
                if previous is not None and not replace:
                    name = _TASK_NAMES[task.kind]
                    raise OptionError(f"this tab is still busy with {name}: stop that first")
                self._sessions.acquire(self)
                self._tasks[task.kind] = task
                thread = threading.Thread(target=self._run, args=(task,), daemon=True)
                self._threads.add(thread)
        if closed:
            task.cancel()  # it may own a file
            return
        if previous is not None:
            previous.cancel()
        thread.start()

    def put_audio(self, audio: bytes) -> None:
        """Pass audio to the live task; without one it is dropped."""
        if (task := self._tasks.get("live")) is not None:
            task.put_audio(audio)

    def stop(self, kind: str) -> None:
        """Let a task finish with the input that it has."""
        if (task := self._tasks.get(kind)) is not None:
            task.stop()

    def cancel(self, kind: str) -> None:
        """Cancel a task."""
        if (task := self._tasks.get(kind)) is not None:
            task.cancel()

    def close(self) -> None:
        """Cancel all tasks; no further task is started and no message is sent."""
        with self._lock:
            self._closed = True
            tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait for all tasks.

        Args:
            seconds: The timeout for each task.

        Returns:
            Whether all have ended.
        """
        for thread in list(self._threads):
            thread.join(seconds)
        return not self._threads

    def _run(self, task: Task) -> None:
        def send(message: Message) -> None:
            # A task that was replaced sends no more messages.
            if self._tasks.get(task.kind) is task:
                self._send_if_open(message)

        cancelled = False
        try:
            task.run(send)
        except TaskCancelled:
            cancelled = True
        except EdgeError as error:
            send({"type": "error", "kind": task.kind, "message": str(error)})
        except Exception as error:  # a crash must not reach the other sessions
            traceback.print_exception(error, file=sys.stderr)
            send({"type": "error", "kind": task.kind, "message": unexpected(error)})
        finally:
            with self._lock:
                current = self._tasks.get(task.kind) is task
                if current:
                    del self._tasks[task.kind]
                self._threads.discard(threading.current_thread())
                if not self._tasks:
                    self._sessions.release(self)
            if current:
                self._send_if_open({"type": "idle", "kind": task.kind, "cancelled": cancelled})

    def _send_if_open(self, message: Message) -> None:
        if not self._closed:
            self._send(message)
