"""A lost connection: tasks that may go on do, and a new connection takes them over."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from edgeapp.server.parking import Parking
from edgeapp.server.sessions import Session, Sessions, TaskCancelled, TooManySessions


class Captions:
    """A task that sends a number at each `go`, until it is stopped or cancelled."""

    def __init__(self, kind: str = "live", *, resumable: bool = True) -> None:
        self.kind, self.resumable = kind, resumable
        self.sent: list[int] = []
        self.ended = threading.Event()
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._end: str | None = None

    def run(self, send: Any) -> None:
        try:
            while self._go.acquire(timeout=20) and self._end is None:
                self.sent.append(len(self.sent))
                send({"type": "number", "number": self.sent[-1]})
                self._done.release()
            if self._end == "cancel":
                raise TaskCancelled
        finally:
            self.ended.set()

    def go(self) -> None:
        self._go.release()
        assert self._done.acquire(timeout=20)

    def resume(self, send: Any) -> None:
        send({"type": "all", "numbers": list(self.sent)})

    def put_audio(self, audio: bytes) -> None: ...

    def stop(self) -> None:
        self._finish("stop")

    def cancel(self) -> None:
        self._finish("cancel")

    def _finish(self, how: str) -> None:
        self._end = self._end or how
        self._go.release()


def running(sessions: Sessions, *tasks: Captions) -> tuple[Session, list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    session = Session(sessions, messages.append)
    for task in tasks:
        session.start(task)
    return session, messages


def test_a_parked_task_goes_on_and_tells_the_new_connection_everything() -> None:
    sessions, task = Sessions(1), Captions()
    session, before = running(sessions, task)
    task.go()
    assert session.park()
    task.go()
    assert before == [{"type": "number", "number": 0}], "the lost connection gets no more"
    assert sessions.running == 0, "a parked session does not count as taken"
    after: list[dict[str, Any]] = []
    session.attach(after.append)
    task.go()
    session.stop("live")
    assert session.wait(20)
    assert after == [
        {"type": "all", "numbers": [0, 1]},
        {"type": "number", "number": 2},
        {"type": "idle", "kind": "live", "cancelled": False},
    ]


def test_a_task_that_ended_meanwhile_is_told_too() -> None:
    session, _ = running(Sessions(1), task := Captions())
    task.go()
    session.park()
    session.stop("live")
    assert session.wait(20)
    after: list[dict[str, Any]] = []
    session.attach(after.append)
    assert [message["type"] for message in after] == ["all", "idle"]


def test_other_tasks_are_cancelled_with_the_connection() -> None:
    text = Captions("text", resumable=False)
    session, _ = running(Sessions(1), text)
    assert not session.park(), "nothing to wait for"
    live = Captions()
    session.start(live)
    assert session.park()
    assert text.ended.wait(20)
    assert not live.ended.is_set()
    session.close()


def test_a_parked_session_gives_its_place_to_another() -> None:
    sessions, task = Sessions(1), Captions()
    session, _ = running(sessions, task)
    waiting = Captions()
    with pytest.raises(TooManySessions):
        running(sessions, waiting)
    session.park()
    other, _ = running(sessions, waiting)
    assert task.ended.wait(20)
    other.close()


def test_only_its_person_takes_a_session_and_only_in_time() -> None:
    async def work() -> None:
        parking, task = Parking(seconds=0.05), Captions()
        session, _ = running(Sessions(4), task)
        assert parking.park("secret", session, "anna")
        assert parking.take("secret", "ben") is None
        assert parking.take("guess", "anna") is None
        assert parking.take("secret", "anna") is session
        assert parking.take("secret", "anna") is None, "once"
        assert parking.park("other", session, "anna")
        assert await asyncio.to_thread(task.ended.wait, 20), "its input ends when time is up"
        assert parking.take("other", "anna") is None
        closed, _ = running(Sessions(4), Captions())
        parking.park("closed", closed, "anna")
        closed.close()
        assert parking.take("closed", "anna") is None

    asyncio.run(work())
