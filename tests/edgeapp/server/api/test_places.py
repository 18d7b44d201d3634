"""One count of places for the page, /v1/live, the Realtime interface, and requests of programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.slow


def message_of(socket: ClientConnection) -> dict[str, Any]:
    return dict(json.loads(socket.recv(60)))


def until(socket: ClientConnection, *kinds: str) -> dict[str, Any]:
    while (message := message_of(socket))["type"] not in kinds:
        pass
    return message


@contextmanager
def page(url: str) -> Iterator[str]:
    """Live captions of a tab: "" once they run, else why they do not."""
    origin = url.replace("ws", "http").strip("/")
    with connect(f"{url}edgeapp/session", origin=origin, open_timeout=60) as socket:
        socket.send(json.dumps({"type": "live", "rate": 16_000, "resumable": False}))
        answer = until(socket, "live_listening", "error", "status")
        yield str(answer.get("message", "") if answer["type"] == "error" else "")


@contextmanager
def live(url: str) -> Iterator[str]:
    with connect(f"{url}v1/live?rate=16000", open_timeout=60) as socket:
        answer = until(socket, "started", "error")
        if answer["type"] == "started":
            socket.send(bytes(3_200))
            answer = until(socket, "status", "error")
        yield str(answer.get("message", "") if answer["type"] == "error" else "")


@contextmanager
def realtime(url: str) -> Iterator[str]:
    with connect(f"{url}v1/realtime?intent=transcription", open_timeout=60) as socket:
        answer = until(socket, "session.created", "error")
        yield answer["error"]["message"] if answer["type"] == "error" else ""


DOORS: dict[str, Callable[[str], Any]] = {"page": page, "live": live, "realtime": realtime}


@pytest.mark.parametrize("third", DOORS)
@pytest.mark.parametrize("others", [("page", "realtime"), ("live", "realtime"), ("page", "live")])
def test_the_third_session_of_two_is_refused_whatever_the_door(
    thread_server: Callable[..., str], others: tuple[str, str], third: str
) -> None:
    url = thread_server(sessions=2).replace("http", "ws")
    with ExitStack() as stack:
        for door in others:
            assert stack.enter_context(DOORS[door](url)) == ""
        with DOORS[third](url) as refused:
            assert "busy" in refused


def test_a_request_waits_for_the_place_of_a_session(thread_server: Callable[..., str]) -> None:
    url = thread_server(sessions=1)
    fields = {"q": "Hello.", "source": "en", "target": "de"}
    with realtime(url.replace("http", "ws")) as refused:
        assert refused == ""
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}translate", json=fields, timeout=httpx.Timeout(60, read=1))
    response = httpx.post(f"{url}translate", json=fields, timeout=60)
    assert response.status_code == 200
