"""One visitor's floods do not stop another visitor of the same server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed

from edgeapp.server import uploads
from edgeapp.server.fairness import FairThreads, MessageRates
from edgeapp.server.tasks.picture_task import LARGEST_PICTURE_MB
from tests.edgeapp.server import attacks

# Without the limits a visitor waited 8 s to 60 s during most of these.
LONGEST_S = 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(attacks.ATTACKS))
def test_what_a_visitor_waits(real_server: str, name: str, capfd: Any) -> None:
    attacks.warm_up(real_server)
    with attacks.attacking(name, real_server) as running:
        waited = attacks.waits(real_server, lambda seconds: running(seconds) and seconds < 5)
    with capfd.disabled():
        print(f"\n{name}: {waited}")
    assert not waited.failures, waited
    assert len(waited.requests) >= 5, waited
    assert waited.longest < LONGEST_S, waited


def test_a_large_export_succeeds(real_server: str) -> None:
    assert attacks.large_export(real_server, source=attacks.VISITOR, megabytes=0.5) == 200
    assert attacks.large_export(real_server, megabytes=65) in (0, 413)


def test_an_export_whose_browser_leaves_is_ended(real_server: str) -> None:
    """So that it does not hold up the next one of the same person, which is answered within the
    minute that `large_export` waits: rendering the first one takes more CPU time than that."""
    parts = urlsplit(real_server)
    assert parts.hostname is not None
    cue = b'{"start":1.0,"end":2.0,"text":"Good morning."}'
    body = b'{"format":"srt","cues":[' + b",".join([cue] * 1_000_000) + b"]}"
    connection = HTTPConnection(parts.hostname, parts.port, source_address=(attacks.ATTACKER, 0))
    connection.request("POST", "/edgeapp/export", body)
    connection.close()
    assert attacks.large_export(real_server, megabytes=0.3) == 200


def upload(url: str, tab: Any, **options: Any) -> int:
    path = f"/edgeapp/upload/{json.loads(tab.recv(60))['session']}"
    return attacks.request(url, "PUT", path, body=b"abc", **options)[0].status


@pytest.mark.parametrize("finished", [True, False])
def test_uploads_of_one_person_leave_slots_for_others(
    thread_server: Callable[..., str], finished: bool
) -> None:
    url = thread_server(host="0.0.0.0", open_to_all=True).replace("0.0.0.0", "127.0.0.1")
    with attacks.tiny_uploads(url, finished=finished) as statuses, attacks.open_tab(url) as tab:
        assert statuses == ([200, 200, 503, 503] if finished else [])
        assert upload(url, tab) == 200


def test_a_recording_that_is_not_used_gives_way(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_WAITS_S", 0.3)
    url = thread_server(sessions=1)
    with attacks.tiny_uploads(url, count=1) as statuses, attacks.open_tab(url) as tab:
        assert statuses == [200]
        time.sleep(0.4)
        assert upload(url, tab) == 200


def test_an_upload_that_breaks_off_returns_its_slot(thread_server: Callable[..., str]) -> None:
    url = thread_server(sessions=1)
    with attacks.tiny_uploads(url, count=1, finished=False):
        pass
    with attacks.open_tab(url) as tab:
        assert upload(url, tab) == 200


def test_an_invalid_length_is_an_error_of_the_request() -> None:
    from starlette.requests import Request

    from edgeapp.server.uploads import Uploads

    store = Uploads(1, 1.0, 1, 1)
    try:
        for length in (b"x", b"-1", b"1e3", "²".encode("latin-1"), b"9" * 5_000, b""):
            scope = {
                "type": "http", "method": "PUT", "headers": [(b"content-length", length)],
                "path_params": {"token": store.open("anna")},
            }  # fmt: skip
            assert asyncio.run(store.receive(Request(scope))).status_code == 400, length
    finally:
        store.remove_all()


def test_a_large_picture_is_refused_before_it_is_sent(thread_server: Callable[..., str]) -> None:
    url = thread_server(upload_mb=100)
    with attacks.open_tab(url) as tab:
        hello = json.loads(tab.recv(60))
        assert hello["limits"]["picture_megabytes"] == LARGEST_PICTURE_MB < 100
        headers = {"Content-Length": str((LARGEST_PICTURE_MB << 20) + 1)}
        path = f"/edgeapp/upload/{hello['pictures']}"
        response, content = attacks.request(url, "PUT", path, headers=headers)
        assert response.status == 413
        assert f"the limit of {LARGEST_PICTURE_MB} MB" in json.loads(content)["error"]


def test_a_full_disk_is_reported(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgeapp.server.uploads._store", full)
    url = thread_server()
    with attacks.open_tab(url) as tab:
        path = f"/edgeapp/upload/{json.loads(tab.recv(60))['session']}"
        response, body = attacks.request(url, "PUT", path, body=b"abc")
    assert response.status == 507
    assert b"No space left on device" in body


def test_texts_that_replace_each_other_use_one_thread(real_server: str) -> None:
    """The last of many is translated."""
    text = {"type": "text", "language": "en", "target": "de", "text": "Good morning."}
    with attacks.open_tab(real_server) as tab:
        for number in range(100):
            tab.send(json.dumps({**text, "number": number}))
        while (message := json.loads(tab.recv(60)))["type"] != "text_done" or (
            message["number"] != 99
        ):
            assert message["type"] != "error", message
        assert "Guten" in message["text"]


def test_a_user_cannot_take_all_sessions(thread_server: Callable[..., str]) -> None:
    url = thread_server(host="0.0.0.0", open_to_all=True, sessions=3).replace(
        "0.0.0.0", "127.0.0.1"
    )
    live = json.dumps({"type": "live", "rate": 16_000})

    def begins(tab: Any) -> str:
        tab.send(live)
        while (message := json.loads(tab.recv(60)))["type"] not in ("live_listening", "error"):
            pass
        return str(message.get("message", "begun"))

    one: dict[str, Any] = {"source": attacks.ATTACKER}
    with (
        attacks.open_tab(url, **one) as a,
        attacks.open_tab(url, **one) as b,
        attacks.open_tab(url, **one) as c,
        attacks.open_tab(url) as other,
    ):
        assert begins(a) == "begun"
        assert begins(b) == "begun"
        assert "2 of the sessions that run are yours" in begins(c)
        assert begins(other) == "begun"


def test_a_person_gets_a_part_of_the_threads() -> None:
    order: list[str] = []
    release = threading.Event()

    def work(person: str) -> None:
        order.append(person)
        assert release.wait(60)

    async def both() -> None:
        threads = FairThreads(threads=3, per_person=2)
        many = [asyncio.create_task(threads.run("a", lambda: work("a"))) for _ in range(20)]
        await asyncio.sleep(0)
        one = asyncio.create_task(threads.run("b", lambda: work("b")))
        while len(order) < 3:
            await asyncio.sleep(0.01)
        assert sorted(order) == ["a", "a", "b"]
        # A caller that leaves frees no thread: the work goes on.
        for task in many[:2]:
            task.cancel()
        await asyncio.sleep(0.1)
        assert len(order) == 3
        release.set()
        await asyncio.gather(*many, one, return_exceptions=True)
        threads.close()

    asyncio.run(both())
    assert order.count("a") == 20


@pytest.mark.slow
def test_messages_are_read_at_a_rate() -> None:
    async def flood() -> tuple[float, float]:
        rates, began = MessageRates(), time.monotonic()
        for _ in range(175):  # after a burst of 125
            await rates.take("a", 12)
        many = time.monotonic() - began
        await rates.take("b", 12)
        return many, time.monotonic() - began - many

    many, one = asyncio.run(flood())
    assert 2.0 < many < 20.0
    assert one < 1.0


def test_blocks_of_audio_are_not_slowed_down(thread_server: Callable[..., str]) -> None:
    """Four tabs with microphones send 100 blocks a second."""

    async def speak() -> float:
        rates, began = MessageRates(), time.monotonic()
        for _ in range(1_000):
            await rates.take("a", 1)
        return time.monotonic() - began

    assert asyncio.run(speak()) < 5


@pytest.mark.slow
def test_the_flooding_tab_is_read_slowly_and_stays(thread_server: Callable[..., str]) -> None:
    url = thread_server()
    began = time.monotonic()
    replies = attacks.message_flood(url, count=1_000, seconds=6)
    assert 100 <= replies <= 125 + 20 * (time.monotonic() - began) + 20
    with attacks.open_tab(url, source=attacks.ATTACKER) as tab:
        try:
            assert json.loads(tab.recv(60))["type"] == "hello"
        except ConnectionClosed:
            pytest.fail("a new tab of the same person is refused")
