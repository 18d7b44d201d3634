"""One session a browser tab: what it has running, in threads of its own, and how many may."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from edgeapp.exit_codes import unexpected
from pipelines import EdgeError, OptionError

__all__ = ["SessionAbandoned", "Message", "Send", "Session", "Sessions", "Task", "TooManySessions"]

Message = dict[str, Any]
Send = Callable[[Message], None]


class TooManySessions(EdgeError):
    """As many people as this machine serves at once are using it."""


class SessionAbandoned(Exception):
    """Raised inside a task whose result nobody waits for any more."""


class Task(Protocol):
    """Something that takes a while: live captions, a recording, a text, a download."""

    kind: str

    def run(self, send: Send) -> None:
        """To the end, or until it is abandoned; in a thread of its own. May raise Abandoned."""
        ...

    def take(self, audio: bytes) -> None:
        """Audio from the browser."""
        ...

    def stop(self) -> None:
        """No more is to come; what is there is still worked on. From any thread."""
        ...

    def abandon(self) -> None:
        """Nobody waits for it any more. From any thread."""
        ...


class Sessions:
    """All open tabs. most: how many of them may have something running at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._running: set[Session] = set()

    @property
    def running(self) -> int:
        """How many have something running."""
        return len(self._running)

    def enter(self, session: Session) -> None:
        """Take a place, unless the session has one. Raises TooManySessions."""
        with self._lock:
            if session not in self._running and len(self._running) >= self.most:
                people = "1 session runs" if self.most == 1 else f"{self.most} sessions run"
                raise TooManySessions(
                    f"this machine is busy: {people} on it already. Try again when one has ended."
                )
            self._running.add(session)

    def leave(self, session: Session) -> None:
        """Give the place back."""
        with self._lock:
            self._running.discard(session)

    def close(self) -> None:
        """The server ends."""
        with self._lock:
            running = list(self._running)
        for session in running:
            session.close()


class Session:
    """A tab's own: at most one task of each kind. send: takes messages, from any thread."""

    def __init__(self, sessions: Sessions, send: Send) -> None:
        self._sessions, self._send = sessions, send
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, task: Task, *, instead: bool = False) -> None:
        """Run a task beside everybody else's. instead: it takes the place of one of its kind.

        Raises TooManySessions, OptionError when one of its kind runs already.
        """
        with self._lock:
            if self._closed:
                return
            before = self._tasks.get(task.kind)
            if before is not None and not instead:
                raise OptionError(f"{task.kind} is still running in this tab: end it first")
            self._sessions.enter(self)
            self._tasks[task.kind] = task
            thread = threading.Thread(target=self._run, args=(task,), daemon=True)
            self._threads.add(thread)
        if before is not None:
            before.abandon()
        thread.start()

    def take(self, audio: bytes) -> None:
        """Audio for the live task; what comes after its end is nobody's."""
        if (task := self._tasks.get("live")) is not None:
            task.take(audio)

    def stop(self, kind: str) -> None:
        """Let a task come to its end with what it has."""
        if (task := self._tasks.get(kind)) is not None:
            task.stop()

    def cancel(self, kind: str) -> None:
        """End a task now."""
        if (task := self._tasks.get(kind)) is not None:
            task.abandon()

    def close(self) -> None:
        """The tab was closed: everything it had is given back."""
        with self._lock:
            self._closed = True
            tasks = list(self._tasks.values())
        for task in tasks:
            task.abandon()

    def wait(self, seconds: float) -> bool:
        """Until nothing runs; False when it takes longer than so many seconds for a task."""
        for thread in list(self._threads):
            thread.join(seconds)
        return not self._threads

    def _run(self, task: Task) -> None:
        def tell(message: Message) -> None:
            # A task that another has taken the place of has nothing to say any more.
            if self._tasks.get(task.kind) is task:
                self._tell(message)

        cancelled = False
        try:
            task.run(tell)
        except SessionAbandoned:
            cancelled = True
        except EdgeError as error:
            tell({"type": "error", "kind": task.kind, "message": str(error)})
        except Exception as error:  # one session's crash must not reach the others
            traceback.print_exception(error, file=sys.stderr)
            tell({"type": "error", "kind": task.kind, "message": unexpected(error)})
        finally:
            with self._lock:
                last = self._tasks.get(task.kind) is task
                if last:
                    del self._tasks[task.kind]
                self._threads.discard(threading.current_thread())
                if not self._tasks:
                    self._sessions.leave(self)
            if last:
                self._tell({"type": "idle", "kind": task.kind, "cancelled": cancelled})

    def _tell(self, message: Message) -> None:
        if not self._closed:
            self._send(message)
