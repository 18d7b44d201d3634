"""Sessions: one for each browser tab, with its running tasks, and a limit for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from pipelines import EdgeError, OptionError

__all__ = [
    "Message", "ResumableTask", "Send", "Session", "Sessions", "Task", "TaskCancelled",
    "TooManySessions",
]  # fmt: skip

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


@runtime_checkable
class ResumableTask(Protocol):
    """A task that goes on while its tab is not connected.

    Attributes:
        resumable: Whether this one does.
    """

    resumable: bool

    def resume(self, send: Send) -> None:
        """Send what a tab that has connected again may have missed. From any thread."""
        ...


class Sessions:
    """All open sessions.

    Args:
        limit: The number of sessions that may have running tasks at the same time.
        per_person: How many of them may be one person's. None: all.
    """

    def __init__(self, limit: int, per_person: int | None = None) -> None:
        self.limit = limit
        self._per_person = limit if per_person is None else per_person
        self._lock = threading.Lock()
        self._running: set[Session] = set()

    @property
    def running(self) -> int:
        """The number of sessions with a running task, whose tab is connected."""
        with self._lock:
            return sum(not session.parked for session in self._running)

    def acquire(self, session: Session) -> None:
        """Count a session as running, if it is not yet. A parked session gives its place away.

        Raises:
            TooManySessions: The limit is reached.
        """
        with self._lock:
            if session in self._running:
                return
            self._evict_for(session)
            if len(self._running) >= self.limit:
                sessions = "1 session runs" if self.limit == 1 else f"{self.limit} sessions run"
                raise TooManySessions(
                    f"this machine is busy: {sessions} on it already. Try again when one has ended."
                )
            if sum(each.person == session.person for each in self._running) >= self._per_person:
                raise TooManySessions(
                    f"{self._per_person} of the sessions that run are yours, and the rest is for "
                    "others. Try again when one has ended."
                )
            self._running.add(session)

    def _evict_for(self, session: Session) -> None:
        """End a parked session if the new one has no place otherwise. The lock is held."""
        own = [each for each in self._running if each.person == session.person]
        if len(self._running) >= self.limit:
            candidates = list(self._running)
        elif len(own) >= self._per_person:
            candidates = own
        else:
            return
        for parked in (each for each in candidates if each.parked):
            self._running.discard(parked)
            threading.Thread(target=parked.close, daemon=True).start()  # it takes its own lock
            return

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
        person: Whose tab it is.
    """

    def __init__(self, sessions: Sessions, send: Send, person: str = "") -> None:
        self.person = person
        self._sessions, self._send = sessions, send
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}  # by kind: the newest
        # By kind: the newest task, while an older one that it replaces has not ended yet.
        self._waiting: dict[str, Task] = {}
        self._threads: dict[str, threading.Thread] = {}  # by kind
        self._closed = False
        self.parked = False
        self._missed: list[Message] = []  # while it is parked: ends and errors
        self._ended: list[Task] = []  # while it is parked

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return bool(self._tasks)

    @property
    def closed(self) -> bool:
        """Whether its tasks were cancelled for good."""
        return self._closed

    def park(self) -> bool:
        """Let resumable tasks go on without the tab; cancel the others.

        Returns:
            Whether there are any. If not, the session is unchanged.
        """
        with self._lock:
            tasks = list(self._tasks.values())
            waiting = [task for task in tasks if _is_resumable(task)]
            if self._closed or not waiting:
                return False
            self.parked, self._send = True, self._keep_missed
        for task in tasks:
            if task not in waiting:
                task.cancel()
        return True

    def attach(self, send: Send) -> None:
        """Continue with a tab that has connected again; it gets what it missed.

        Args:
            send: Sends a message to the tab; called from any thread.
        """
        with self._lock:
            self.parked, self._send = False, send
            tasks = [*self._ended, *self._tasks.values()]
            missed, self._ended, self._missed = self._missed, [], []
        for task in tasks:
            if isinstance(task, ResumableTask) and task.resumable:
                task.resume(send)
        for message in missed:
            send(message)

    def start(self, task: Task, *, replace: bool = False) -> None:
        """Run a task. A closed session cancels it instead.

        Args:
            task: The task.
            replace: Cancel a running task of the same kind; this one begins when that has ended.

        Raises:
            TooManySessions: The server's limit is reached.
            OptionError: A task of this kind is running, and `replace` is False.
        """
        kind = task.kind
        with self._lock:
            previous, closed = self._tasks.get(kind), self._closed
            if not closed:
                if previous is not None and not replace:
                    name = _TASK_NAMES[kind]
                    raise OptionError(f"this tab is still busy with {name}: stop that first")
                self._sessions.acquire(self)
                self._tasks[kind] = task
                if kind in self._threads:
                    self._waiting[kind] = task
                else:
                    self._start_thread(task)
        if closed:
            task.cancel()  # it may own a file
        elif previous is not None:
            previous.cancel()

    def put_audio(self, audio: bytes) -> None:
        """Pass audio to the live task; without one it is dropped."""
        if (task := self._tasks.get("live")) is not None:
            task.put_audio(audio)

    def task(self, kind: str) -> Task | None:
        """The task of a kind that runs."""
        return self._tasks.get(kind)

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
        for thread in list(self._threads.values()):
            thread.join(seconds)
        return not self._threads

    def _start_thread(self, task: Task) -> None:
        thread = threading.Thread(target=self._run_all, args=(task,), daemon=True)
        self._threads[task.kind] = thread
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no threads left
            self._end(task)
            raise OptionError("this machine is busy: try again in a minute") from error

    def _run_all(self, task: Task) -> None:
        """Run a task, and then those that have replaced it."""
        following: Task | None = task
        while following is not None:
            task = following
            cancelled = self._run(task)
            with self._lock:
                current = self._tasks.get(task.kind) is task
                following = self._waiting.pop(task.kind, None)
                if following is None or self._closed:
                    following = None
                    self._end(task)
            if current:
                self._send_if_open({"type": "idle", "kind": task.kind, "cancelled": cancelled})

    def _end(self, task: Task) -> None:
        """No task of this kind runs any more. The lock is held."""
        if self.parked:
            self._ended.append(task)
        self._tasks.pop(task.kind, None)
        self._threads.pop(task.kind, None)
        if not self._tasks:
            self._sessions.release(self)

    def _run(self, task: Task) -> bool:
        """Run a task and report its errors; whether it was cancelled."""

        def send(message: Message) -> None:
            # A task that was replaced sends no more messages.
            if self._tasks.get(task.kind) is task:
                self._send_if_open(message)

        try:
            task.run(send)
        except TaskCancelled:
            return True
        except EdgeError as error:
            send({"type": "error", "kind": task.kind, "message": str(error)})
        except Exception as error:  # a crash must not reach the other sessions
            print_traceback(error)
            send({"type": "error", "kind": task.kind, "message": unexpected(error)})
        return False

    def _send_if_open(self, message: Message) -> None:
        if not self._closed:
            self._send(message)

    def _keep_missed(self, message: Message) -> None:
        """In place of sending, while the session is parked. Tasks repeat the rest themselves."""
        if message["type"] in ("error", "idle"):
            self._missed.append(message)


def _is_resumable(task: Task) -> bool:
    return isinstance(task, ResumableTask) and task.resumable
