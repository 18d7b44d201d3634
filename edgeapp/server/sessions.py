"""Sessions: one for each browser tab, with its running tasks, and a limit for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from edgeapp.server.places import Places
from pipelines import EdgeError, OptionError

__all__ = [
    "Holder", "Message", "ResumableTask", "Send", "Session", "Sessions", "Task", "TaskCancelled",
    "TooManySessions",
]  # fmt: skip

Message = dict[str, Any]  # a JSON object with a "type"
Send = Callable[[Message], None]

_TASK_NAMES = {
    "live": "live captions", "file": "a recording", "text": "a translation", "picture": "a picture",
}  # fmt: skip


class TooManySessions(EdgeError):
    """The server's limit of running sessions is reached."""


class TaskCancelled(Exception):
    """Raised inside a task that was cancelled."""


class Task(Protocol):
    """A piece of work for a tab, in a thread of its own: captions, a file, a text, a picture.

    Attributes:
        kind: "live", "file", "text" or "picture".
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


class Holder(Protocol):
    """A session that can have a place: a tab's, or a program's.

    Attributes:
        person: Whose session it is.
        parked: It goes on without its tab.
        claimed: Its tab is there again.
        evicted: It gave its place to another session.
    """

    person: str
    parked: bool
    claimed: bool
    evicted: bool

    def close(self) -> None:
        """End the session. From any thread."""
        ...


class Sessions:
    """All open sessions: of tabs, of /v1/live, of the Realtime interface.

    Args:
        limit: The number of places at work.
        per_person: How many of them may be one person's. None: all.

    Attributes:
        places: The places of the sessions that have running tasks. Requests share them.
    """

    def __init__(self, limit: int, per_person: int | None = None) -> None:
        self.places = Places(limit, per_person)
        self._lock = threading.Lock()
        self._running: set[Holder] = set()

    @property
    def running(self) -> int:
        """The number of sessions with a running task, whose tab is connected."""
        with self._lock:
            return sum(not session.parked for session in self._running)

    def acquire(self, session: Holder) -> None:
        """Count a session as running, if it is not yet. A parked session gives its place away.

        Raises:
            TooManySessions: The limit is reached.
        """
        with self._lock:
            if session in self._running:
                return
            self._evict_for(session)
            if not self.places.take(session, session.person):
                raise self._refusal()
            self._running.add(session)

    def _refusal(self) -> TooManySessions:
        """What is said to a session without a place. The lock is held."""
        limit, per_person = self.places.limit, self.places.per_person
        if not self.places.full:
            return TooManySessions(
                f"{per_person} of the sessions that run are yours, and the rest is for others. Try "
                "again when one has ended."
            )
        if len(self._running) < limit:
            return TooManySessions(
                "this machine is busy: all its places are taken by sessions and requests. Try "
                "again when one has ended."
            )
        sessions = "1 session runs" if limit == 1 else f"{limit} sessions run"
        return TooManySessions(
            f"this machine is busy: {sessions} on it already. Try again when one has ended."
        )

    def _evict_for(self, session: Holder) -> None:
        """End a parked session if the new one has no place otherwise. The lock is held."""
        if self.places.full:
            candidates = list(self._running)
        elif self.places.count(session.person) >= self.places.per_person:
            candidates = [each for each in self._running if each.person == session.person]
        else:
            return
        for parked in (each for each in candidates if each.parked and not each.claimed):
            parked.evicted = True
            self._running.discard(parked)
            self.places.give_back(parked)
            threading.Thread(target=parked.close, daemon=True).start()  # it takes its own lock
            return

    def claim(self, session: Session) -> bool:
        """Keep the place of a parked session, whose tab is there again.

        Returns:
            False: it is too late, another session has the place.
        """
        with self._lock:
            session.claimed = not session.evicted
            return session.claimed

    def release(self, session: Holder) -> None:
        """Count a session as idle."""
        with self._lock:
            self._running.discard(session)
        self.places.give_back(session)

    def close(self) -> None:
        """Close all running sessions."""
        with self._lock:
            running = list(self._running)
        for session in running:
            session.close()


@dataclass(eq=False)
class _Started:
    """A task of a tab.

    Attributes:
        number: The page's, of the request; every message of the task carries it.
        cancelled: By the page, or with the connection. What fails from then on is not reported.
    """

    task: Task
    number: int | None
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()

    def tagged(self, message: Message) -> Message:
        return message if self.number is None else message | {"number": self.number}


class Session:
    """The tasks of one tab: at most one of each kind, each in a thread of its own.

    Args:
        sessions: All sessions of the server.
        send: Sends a message to the tab; called from any thread.
        person: Whose tab it is.

    Attributes:
        person: Whose tab it is.
        parked: It goes on without its tab.
        parkings: How often it was parked.
        claimed: Its tab is there again, though it may not have all messages yet.
        evicted: It gave its place to another session.
    """

    def __init__(self, sessions: Sessions, send: Send, person: str = "") -> None:
        self.person = person
        self._sessions, self._send = sessions, send
        self._lock = threading.Lock()
        self._tasks: dict[str, _Started] = {}  # by kind: the newest
        # By kind: the newest task, while an older one that it replaces has not ended yet.
        self._waiting: dict[str, _Started] = {}
        self._threads: dict[str, threading.Thread] = {}  # by kind
        self._closed = False
        self.parked = self.claimed = self.evicted = False
        self.parkings = 0
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
            Whether there are any, or some have ended that no tab knows of. If not, the session is
            unchanged.
        """
        with self._lock:
            others = [each for each in self._tasks.values() if not _is_resumable(each.task)]
            resumable = len(others) < len(self._tasks) or any(map(_is_resumable, self._ended))
            if self._closed or not resumable:
                return False
            self.parked, self.claimed, self._send = True, False, self._keep_missed
            self.parkings += 1
        for each in others:
            each.cancel()
        return True

    def claim(self) -> bool:
        """Keep a parked session for its tab, which is there again; False if it has ended."""
        return not self._closed and self._sessions.claim(self)

    def attach(self, send: Send, parking: int) -> bool:
        """Continue with a tab that has connected again; it gets what it missed.

        Args:
            send: Sends a message to the tab; called from any thread.
            parking: `parkings` when the tab has claimed the session.

        Returns:
            False: the session was closed, or parked again meanwhile, and waits for another
            connection.
        """

        def resumed(message: Message) -> None:
            # Not before: what the task sends until then is in this message.
            if self._unpark(send, parking):
                send(message)

        with self._lock:
            tasks = [*self._ended, *(each.task for each in self._tasks.values())]
        for task in tasks:
            if isinstance(task, ResumableTask) and task.resumable:
                task.resume(resumed)
        with self._lock:
            if self._closed or self.parkings != parking:
                return False
            self.parked, self._send = False, send
            missed, self._ended, self._missed = self._missed, [], []
        for message in missed:
            send(message)
        return True

    def _unpark(self, send: Send, parking: int) -> bool:
        """Send to a tab from now on; False if the session was closed or parked again."""
        with self._lock:
            current = not self._closed and self.parkings == parking
            if current:
                self.parked, self._send = False, send
            return current

    def start(self, task: Task, *, replace: bool = False, number: int | None = None) -> None:
        """Run a task. A closed session cancels it instead.

        Args:
            task: The task.
            replace: Cancel a running task of the same kind; this one begins when that has ended.
            number: The page's number of the request. The messages of the task carry it.

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
                self._tasks[kind] = started = _Started(task, number)
                if kind in self._threads:
                    self._waiting[kind] = started
                else:
                    self._start_thread(started)
        if closed:
            task.cancel()  # it may own a file
        elif previous is not None:
            previous.cancel()

    def put_audio(self, audio: bytes) -> None:
        """Pass audio to the live task; without one it is dropped."""
        if (task := self.task("live")) is not None:
            task.put_audio(audio)

    def task(self, kind: str) -> Task | None:
        """The task of a kind that runs."""
        started = self._tasks.get(kind)
        return None if started is None else started.task

    def stop(self, kind: str) -> None:
        """Let a task finish with the input that it has."""
        if (task := self.task(kind)) is not None:
            task.stop()

    def cancel(self, kind: str) -> None:
        """Cancel a task."""
        if (started := self._tasks.get(kind)) is not None:
            started.cancel()

    def close(self) -> None:
        """Cancel all tasks; no further task is started and no message is sent."""
        with self._lock:
            self._closed = True
            running = list(self._tasks.values())
        for started in running:
            started.cancel()

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

    def _start_thread(self, started: _Started) -> None:
        thread = threading.Thread(target=self._run_all, args=(started,), daemon=True)
        self._threads[started.task.kind] = thread
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no threads left
            self._end(started.task)
            raise OptionError("this machine is busy: try again in a minute") from error

    def _run_all(self, started: _Started) -> None:
        """Run a task, and then those that have replaced it."""
        kind = started.task.kind
        following: _Started | None = started
        while following is not None:
            started = following
            cancelled = self._run(started)
            with self._lock:
                current = self._tasks.get(kind) is started
                following = self._waiting.pop(kind, None)
                if following is None or self._closed:
                    following = None
                    self._end(started.task)
            if current:
                idle = {"type": "idle", "kind": kind, "cancelled": cancelled}
                self._send_if_open(started.tagged(idle))

    def _end(self, task: Task) -> None:
        """No task of this kind runs any more. The lock is held."""
        if self.parked:
            self._ended.append(task)
        self._tasks.pop(task.kind, None)
        self._threads.pop(task.kind, None)
        if not self._tasks:
            self._sessions.release(self)

    def _run(self, started: _Started) -> bool:
        """Run a task, and report its error unless it was cancelled; whether it was."""
        kind = started.task.kind

        def send(message: Message) -> None:
            # A task that was replaced sends no more messages.
            if self._tasks.get(kind) is started:
                self._send_if_open(started.tagged(message))

        try:
            started.task.run(send)
            return False
        except TaskCancelled:
            return True
        except EdgeError as error:
            text = str(error)
        except Exception as error:  # a crash must not reach the other sessions
            print_traceback(error)
            text = unexpected(error)
        if not started.cancelled:
            send({"type": "error", "kind": kind, "message": text})
        return started.cancelled

    def _send_if_open(self, message: Message) -> None:
        if not self._closed:
            self._send(message)

    def _keep_missed(self, message: Message) -> None:
        """In place of sending, while the session is parked. Tasks repeat the rest themselves."""
        if message["type"] in ("error", "idle"):
            self._missed.append(message)


def _is_resumable(task: Task) -> bool:
    return isinstance(task, ResumableTask) and task.resumable
