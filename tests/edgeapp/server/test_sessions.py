"""Sessions: tasks run in parallel, up to a limit, isolated from each other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from edgeapp.server.sessions import Session, Sessions, TaskCancelled, TooManySessions
from pipelines.errors import InputError, OptionError


class Work:
    """A task that sends "begun", waits, and sends "done"."""

    def __init__(self, kind: str = "live", error: Exception | None = None) -> None:
        self.kind, self._error = kind, error
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.cancelled = False
        self.audio = b""

    def run(self, send: Any) -> None:
        send({"type": "begun"})
        self.begun.set()
        assert self.go_on.wait(60)
        if self.cancelled:
            send({"type": "late"})
            raise TaskCancelled
        if self._error is not None:
            raise self._error
        send({"type": "done"})

    def put_audio(self, audio: bytes) -> None:
        self.audio += audio

    def stop(self) -> None:
        self.go_on.set()

    def cancel(self) -> None:
        self.cancelled = True
        self.go_on.set()


class Tab:
    """A session that records its messages."""

    def __init__(self, sessions: Sessions) -> None:
        self.messages: list[dict[str, Any]] = []
        self.session = Session(sessions, self.messages.append)

    def begin(self, work: Work, **options: Any) -> Work:
        self.session.start(work, **options)
        assert work.begun.wait(60)
        return work

    @property
    def types(self) -> list[str]:
        assert self.session.wait(60)
        return [str(message["type"]) for message in self.messages]


def test_a_task_from_start_to_stop() -> None:
    sessions = Sessions(1)
    tab = Tab(sessions)
    work = tab.begin(Work())
    assert sessions.running == 1
    tab.session.put_audio(b"audio")
    tab.session.stop("live")
    assert tab.types == ["begun", "done", "idle"]
    assert (work.audio, sessions.running) == (b"audio", 0)
    tab.session.put_audio(b"more")
    assert work.audio == b"audio", "audio after the end is dropped"


def test_the_number_of_running_sessions_is_limited() -> None:
    sessions = Sessions(2)
    tabs = [Tab(sessions) for _ in range(3)]
    tabs[0].begin(Work())
    tabs[1].begin(Work())
    tabs[1].begin(Work("file"))  # the same session counts once
    with pytest.raises(TooManySessions, match="2 sessions run"):
        tabs[2].session.start(Work())
    tabs[0].session.cancel("live")
    assert tabs[0].types[-1] == "idle"
    tabs[2].begin(Work())
    for tab in tabs:
        tab.session.close()
        assert tab.session.wait(60)
    assert sessions.running == 0


def test_one_of_a_kind_in_a_tab() -> None:
    tab = Tab(Sessions(4))
    tab.begin(Work("file"))
    with pytest.raises(OptionError, match="still busy with a recording: stop that"):
        tab.session.start(Work("file"))
    tab.session.cancel("file")
    assert tab.types == ["begun", "late", "idle"]
    assert tab.messages[-1]["cancelled"]


def test_a_newer_task_replaces_the_older() -> None:
    tab = Tab(Sessions(1))
    older = tab.begin(Work("text"))
    newer = tab.begin(Work("text"), replace=True)
    assert older.cancelled
    newer.stop()
    assert tab.types == ["begun", "begun", "done", "idle"], "the older sends no more"


def test_an_error_of_a_task_that_was_cancelled_is_not_reported() -> None:
    class Loading(Work):
        """Does not check whether it was cancelled before it fails."""

        def cancel(self) -> None:
            self.go_on.set()

    tab = Tab(Sessions(1))
    tab.begin(Loading("file", InputError("does not fit into memory")))
    tab.session.cancel("file")
    assert tab.types == ["begun", "idle"]
    assert tab.messages[-1]["cancelled"]


def test_messages_of_a_task_carry_the_number_of_its_request() -> None:
    tab = Tab(Sessions(1))
    tab.begin(Work("file", InputError("no sound")), number=7).stop()
    assert tab.types == ["begun", "error", "idle"]
    assert {message["number"] for message in tab.messages} == {7}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_crash_is_reported_and_affects_no_other_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sessions = Sessions(4)
    lucky, unlucky, mistaken = Tab(sessions), Tab(sessions), Tab(sessions)
    good = lucky.begin(Work())
    unlucky.begin(Work(error=ZeroDivisionError("oh"))).stop()
    mistaken.begin(Work(error=InputError("no such thing"))).stop()
    assert unlucky.types == ["begun", "error", "idle"]
    assert "unexpected error (ZeroDivisionError: oh)" in unlucky.messages[1]["message"]
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert mistaken.types == ["begun", "error", "idle"]
    assert mistaken.messages[1]["message"] == "no such thing"
    good.stop()
    assert lucky.types == ["begun", "done", "idle"]
    assert sessions.running == 0


def test_a_closed_session_sends_nothing() -> None:
    sessions = Sessions(4)
    tab = Tab(sessions)
    work = tab.begin(Work())
    tab.session.close()
    assert tab.types == ["begun"]
    assert work.cancelled
    assert sessions.running == 0
    late = Work()
    tab.session.start(late)
    assert sessions.running == 0, "a closed session starts no task"
    assert late.cancelled, "it may own a file"


def test_closing_the_server_closes_all_sessions() -> None:
    sessions = Sessions(4)
    tabs = [Tab(sessions) for _ in range(3)]
    for tab in tabs:
        tab.begin(Work())
    sessions.close()
    assert all(tab.types == ["begun"] for tab in tabs)


def test_the_limit_holds_for_tabs_that_begin_at_once() -> None:
    class Slow(set[Session]):
        def __len__(self) -> int:
            count = super().__len__()
            time.sleep(0.02)  # other threads run between the count and what follows from it
            return count

    sessions, start = Sessions(2), threading.Barrier(6)
    sessions._running = Slow()
    refused: list[Tab] = []

    def begin(tab: Tab) -> None:
        start.wait(60)
        try:
            sessions.acquire(tab.session)
        except TooManySessions:
            refused.append(tab)

    tabs = [Tab(sessions) for _ in range(6)]
    threads = [threading.Thread(target=begin, args=(tab,)) for tab in tabs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sessions.running == 2
    assert len(refused) == 4
