"""A lost connection: tasks that may go on do, and a new connection takes them over."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from edgeapp.model_pool import ModelPool
from edgeapp.server.parking import Parking
from edgeapp.server.sessions import Session, Sessions, TaskCancelled, TooManySessions
from edgeapp.server.tasks.live_task import LiveTask


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
            while self._go.acquire(timeout=60) and self._end is None:
                self.sent.append(len(self.sent))
                send({"type": "number", "number": self.sent[-1]})
                self._done.release()
            if self._end == "cancel":
                raise TaskCancelled
        finally:
            self.ended.set()

    def go(self) -> None:
        self._go.release()
        assert self._done.acquire(timeout=60)

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


def test_a_session_whose_tab_is_back_keeps_its_place() -> None:
    async def take(session: Session) -> Session | None:
        parking = Parking()
        assert parking.park(["token"], session, "anna")
        return parking.take("token", "anna")

    sessions, task = Sessions(1), Captions()
    session, _ = running(sessions, task)
    assert asyncio.run(take(session)) is session
    other = Session(sessions, lambda message: None)
    with pytest.raises(TooManySessions):  # though the tab does not have all messages yet
        other.start(Captions())
    assert session.park(), "its tab was lost again"
    other.start(Captions())
    assert not session.claim(), "the other one has its place"
    assert task.ended.wait(60)
    other.stop("live")
    assert other.wait(60)


def test_a_parked_task_goes_on_and_tells_the_new_connection_everything() -> None:
    sessions, task = Sessions(1), Captions()
    session, before = running(sessions, task)
    task.go()
    assert session.park()
    task.go()
    assert before == [{"type": "number", "number": 0}], "the lost connection gets no more"
    assert sessions.running == 0, "a parked session does not count as taken"
    after: list[dict[str, Any]] = []
    session.attach(after.append, session.parkings)
    task.go()
    session.stop("live")
    assert session.wait(60)
    assert after == [
        {"type": "all", "numbers": [0, 1]},
        {"type": "number", "number": 2},
        {"type": "idle", "kind": "live", "cancelled": False},
    ]


def test_an_event_of_the_moment_of_resuming_comes_once_and_after_the_snapshot() -> None:
    class Busy(Captions):
        def resume(self, send: Any) -> None:
            self.go()
            super().resume(send)

    session, _ = running(Sessions(1), task := Busy())
    session.park()
    after: list[dict[str, Any]] = []
    session.attach(after.append, session.parkings)
    task.go()
    session.stop("live")
    assert session.wait(60)
    assert after[:2] == [{"type": "all", "numbers": [0]}, {"type": "number", "number": 1}]


def test_a_task_that_ended_meanwhile_is_told_too() -> None:
    session, _ = running(Sessions(1), task := Captions())
    task.go()
    session.park()
    session.stop("live")
    assert session.wait(60)
    after: list[dict[str, Any]] = []
    session.attach(after.append, session.parkings)
    assert [message["type"] for message in after] == ["all", "idle"]


def test_a_connection_that_is_lost_before_it_has_taken_over_does_not_take_over() -> None:
    session, _ = running(Sessions(1), task := Captions())
    session.park()
    assert session.claim()
    lost = session.parkings
    assert session.park(), "the second connection is lost, too, before its thread runs"
    dead: list[dict[str, Any]] = []
    assert not session.attach(dead.append, lost)
    assert session.parked
    task.go()
    session.stop("live")
    assert session.wait(60)
    after: list[dict[str, Any]] = []
    assert session.claim()
    assert session.attach(after.append, session.parkings)
    assert [message["type"] for message in after] == ["all", "idle"]
    assert dead == []


def test_a_connection_that_is_lost_while_it_takes_over_gets_no_more() -> None:
    class Slow(Captions):
        def resume(self, send: Any) -> None:
            super().resume(send)
            if after is first:
                assert session.park()
            super().resume(send)

    first: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    session, _ = running(Sessions(1), task := Slow())
    session.park()
    after = first
    assert not session.attach(first.append, session.parkings)
    assert session.parked
    after = last
    assert session.attach(last.append, session.parkings)
    task.go()
    session.stop("live")
    assert session.wait(60)
    assert [message["type"] for message in first] == ["all"]
    assert [message["type"] for message in last] == ["all", "all", "number", "idle"]


def test_captions_that_end_before_they_are_taken_over_are_kept_for_the_next_connection() -> None:
    session, _ = running(Sessions(1), task := Captions())
    task.go()
    session.park()
    assert session.claim()
    session.stop("live")
    assert session.wait(60)
    assert session.park(), "the connection that has claimed it is lost"
    after: list[dict[str, Any]] = []
    assert session.claim()
    assert session.attach(after.append, session.parkings)
    assert [message["type"] for message in after] == ["all", "idle"]


def test_a_closed_session_is_not_taken_over() -> None:
    session, _ = running(Sessions(1), Captions())
    session.park()
    session.close()
    assert not session.attach([].append, session.parkings)
    assert session.wait(60)


def test_a_session_is_found_by_each_of_its_tokens_once() -> None:
    async def work() -> None:
        parking = Parking()
        session, _ = running(Sessions(1), Captions())
        for token in ("older", "newer"):
            assert parking.park(["older", "newer"], session, "anna")
            assert parking.take(token, "anna") is session
            assert parking.take("older", "anna") is None
            assert parking.take("newer", "anna") is None
        session.close()

    asyncio.run(work())


def test_other_tasks_are_cancelled_with_the_connection() -> None:
    text = Captions("text", resumable=False)
    session, _ = running(Sessions(1), text)
    assert not session.park(), "nothing to wait for"
    live = Captions()
    session.start(live)
    assert session.park()
    assert text.ended.wait(60)
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
    assert task.ended.wait(60)
    other.close()


def test_only_its_person_takes_a_session_and_only_in_time() -> None:
    async def work() -> None:
        parking, task = Parking(seconds=0.05), Captions()
        session, _ = running(Sessions(4), task)
        assert parking.park(["secret"], session, "anna")
        assert parking.take("secret", "ben") is None
        assert parking.take("guess", "anna") is None
        assert parking.take("secret", "anna") is session
        assert parking.take("secret", "anna") is None, "once"
        assert parking.park(["other"], session, "anna")
        assert await asyncio.to_thread(task.ended.wait, 60), "its input ends when time is up"
        assert parking.take("other", "anna") is None
        closed, _ = running(Sessions(4), Captions())
        parking.park(["closed"], closed, "anna")
        closed.close()
        assert parking.take("closed", "anna") is None

    asyncio.run(work())


@pytest.mark.slow
def test_captions_survive_a_connection_that_is_lost_while_it_resumes_them(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    original = LiveTask.resume

    def resume(self: LiveTask, send: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        original(self, send)

    monkeypatch.setattr(LiveTask, "resume", resume)
    url = thread_server()
    options = {"language": "en", "rate": 16_000, "resumable": True, "keep": False}
    with page_connection(url) as first:
        token = next_of(first, "hello")["session"]
        first.send(json.dumps({"type": "live", **options}))
        next_of(first, "live_listening")
    with page_connection(url) as second:
        second.send(json.dumps({"type": "resume", "session": token}))
        assert begun.wait(60)
    with page_connection(url) as third:
        # The page knows of the first connection only: nothing has come over the second.
        third.send(json.dumps({"type": "resume", "session": token}))
        assert next_of(third, "live_resumed", "not_resumed")["type"] == "live_resumed"
        go_on.set()
        third.send(json.dumps({"type": "stop", "kind": "live"}))
        assert not next_of(third, "idle")["cancelled"]


def test_pings_and_resuming_do_not_wait_for_models_that_load(
    thread_server: Callable[..., str], hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page takes a connection whose pings are late for lost, and asks to resume it."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def load(self: ModelPool, name: str, task: str) -> None:
        begun.release()
        assert go_on.wait(60)

    monkeypatch.setattr(ModelPool, "load", load)
    monkeypatch.setattr(LiveTask, "run", lambda self, send: go_on.wait(60))
    url = thread_server()
    try:
        with page_connection(url) as first:
            token = next_of(first, "hello")["session"]
            first.send(json.dumps({"type": "live", "rate": 16_000, "resumable": True}))
            for number in range(3):  # more than one person gets threads
                first.send(json.dumps({"type": "load", "name": "demo", "id": number}))
            assert begun.acquire(timeout=60)
            assert begun.acquire(timeout=60)
            first.send(json.dumps({"type": "ping", "id": 9}))
            assert next_of(first, "reply") == {"type": "reply", "id": 9, "compiling": False}
        with page_connection(url) as second:
            second.send(json.dumps({"type": "resume", "session": token}))
            assert next_of(second, "live_resumed", "not_resumed")["type"] == "live_resumed"
    finally:
        go_on.set()


@contextmanager
def page_connection(url: str) -> Iterator[ClientConnection]:
    address = url.replace("http", "ws")
    with connect(
        f"{address}edgeapp/session", origin=Origin(url.rstrip("/")), open_timeout=60
    ) as socket:
        yield socket


def next_of(socket: ClientConnection, *types: str) -> dict[str, Any]:
    """The next message of one of the types."""
    while True:
        message = dict(json.loads(socket.recv(60)))
        if message["type"] in types:
            return message
