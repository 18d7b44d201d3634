"""Messages to a tab: what cannot be sent does not mute it; one that is too far behind ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from edgeapp.server.transport import outbox
from edgeapp.server.transport.outbox import Outbox, encode
from tests.edgeapp.server import attacks

LONE = "\udcff"  # an undecodable byte of a file name


def test_every_text_can_be_sent() -> None:
    assert encode({"text": "für 日本"}) == '{"text": "für 日本"}'
    assert json.loads(encode({"text": f"a{LONE}b"}).encode())["text"] == f"a{LONE}b"


def test_numbers_that_json_lacks_become_null() -> None:
    values = {"a": float("nan"), "b": [1.5, float("inf")], "c": (2, {"d": -float("inf")})}
    assert json.loads(encode(values)) == {"a": None, "b": [1.5, None], "c": [2, {"d": None}]}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], Any]], None]:
    """Replaces the handlers of requests."""

    def replace(reply: Callable[[dict[str, Any]], Any]) -> None:
        monkeypatch.setattr(
            "edgeapp.server.page.page_api.PageApi.reply",
            lambda self, message, history: reply(message),
        )

    return replace


def test_a_reply_with_a_lone_surrogate_arrives(
    thread_server: Callable[..., str], api: Callable[..., None]
) -> None:
    api(lambda message: {"models": [f"name{LONE}"]})
    with attacks.open_tab(thread_server()) as tab:
        for _ in range(2):
            assert attacks.ask(tab, {"type": "models"})["models"] == [f"name{LONE}"]


def test_a_file_name_with_a_lone_surrogate_mutes_nothing(thread_server: Callable[..., str]) -> None:
    with attacks.open_tab(thread_server()) as tab:
        token = json.loads(tab.recv(60))["session"]
        url = f"http://{tab.remote_address[0]}:{tab.remote_address[1]}/"
        attacks.request(url, "PUT", f"/edgeapp/upload/{token}", body=b"no audio")
        tab.send('{"type": "file", "name": "a\\ud800b\\u001b[31m.mp3"}')
        message = json.loads(tab.recv(60))
        assert message["type"] == "error"
        assert message["message"].startswith("a?b\x1b[31m.mp3")
        assert json.loads(tab.recv(60))["type"] == "idle"
        assert "models" in attacks.ask(tab, {"type": "models"})


def test_a_message_without_a_json_form_is_replaced_by_an_error(
    thread_server: Callable[..., str], api: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    api(lambda message: {"models": object()} if message["type"] == "models" else {"more": 1})
    with attacks.open_tab(thread_server()) as tab:
        assert "TypeError" in attacks.ask(tab, {"type": "models"})["error"]
        assert attacks.ask(tab, {"type": "history"})["more"] == 1
    assert "not JSON serializable" in capsys.readouterr().err


def test_a_writer_that_dies_is_logged_and_the_connection_closed(
    thread_server: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that the page connects again."""

    async def broken(self: Any, text: str) -> None:
        raise ZeroDivisionError("oh")

    with monkeypatch.context() as patch:
        patch.setattr("starlette.websockets.WebSocket.send_text", broken)
        url = thread_server()
        with attacks.open_tab(url) as tab, pytest.raises(ConnectionClosed):
            tab.recv(60)
        assert tab.close_code == 1011
    assert "ZeroDivisionError: oh" in capsys.readouterr().err
    with attacks.open_tab(url) as tab:
        assert json.loads(tab.recv(60))["type"] == "hello"


@pytest.mark.slow
def test_a_tab_that_is_too_far_behind_is_closed(
    thread_server: Callable[..., str], api: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its writer waits for the browser; other tabs go on."""
    monkeypatch.setattr(outbox, "_MAX_CHARACTERS", 8 << 20)
    monkeypatch.setattr("edgeapp.server.transport.protocols.STALLED_S", 1.0)
    api(lambda message: {"text": "a" * (1 << 20)})
    url = thread_server()
    with attacks.open_tab(url, source=attacks.ATTACKER) as behind, attacks.open_tab(url) as other:
        line = behind.socket
        # The client's thread reads no more.
        behind.protocol.receive_data = lambda data: time.sleep(5)  # type: ignore[method-assign]
        line.settimeout(60)
        request = attacks._frame(b'{"type": "models", "id": 1}')
        with pytest.raises(OSError, match="reset|Broken pipe"):  # noqa: PT012
            for _ in range(600):
                line.sendall(request)
                time.sleep(0.1)
        assert len(attacks.ask(other, {"type": "models"})["text"]) == 1 << 20


def test_the_tabs_of_a_person_are_limited(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.socket._MAX_TABS", 2)
    url = thread_server()
    one = {"source": attacks.ATTACKER}
    with attacks.open_tab(url, **one), attacks.open_tab(url, **one) as second:  # type: ignore[arg-type]
        with attacks.open_tab(url, **one) as third:  # type: ignore[arg-type]
            message = json.loads(third.recv(60))
            assert message["message"].startswith("2 tabs of yours are open already")
            with pytest.raises(ConnectionClosed):
                third.recv(60)
        with attacks.open_tab(url) as other:
            assert json.loads(other.recv(60))["type"] == "hello"
        second.close()
        # The server learns of the closed tab a moment after its client.
        end = time.monotonic() + 60
        greeting = ""
        while greeting != "hello" and time.monotonic() < end:
            with attacks.open_tab(url, **one) as again:  # type: ignore[arg-type]
                greeting = json.loads(again.recv(60))["type"]
        assert greeting == "hello"


@pytest.mark.parametrize("steps", range(6))
def test_a_writer_that_is_cancelled_as_a_message_arrives_ends(steps: int) -> None:
    """asyncio.wait_for of Python 3.11 would lose the cancellation, and the connection stay."""

    async def work() -> None:
        outbox = Outbox()
        writer = asyncio.create_task(outbox.get(30))
        await asyncio.sleep(0)
        outbox.put({"type": "a"})
        for _ in range(steps):
            await asyncio.sleep(0)
        if writer.cancel():
            with pytest.raises(asyncio.CancelledError):
                await writer

    asyncio.run(work())
