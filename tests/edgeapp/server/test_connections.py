"""Connections: how many, and how long a request may take to arrive."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from edgeapp.server.transport import protocols
from edgeapp.server.transport.connections import Connections
from tests.e2e.test_ui_logins import certificate
from tests.edgeapp.server import attacks


class Line:
    """A socket that notes whether it was shut down."""

    def __init__(self) -> None:
        self.down = False

    def shutdown(self, how: int) -> None:
        self.down = True


def admit(connections: Connections, address: str, port: int) -> Any:
    line: Any = Line()
    return line if connections.admit(line, (address, port)) else None


def test_the_oldest_that_waits_gives_way() -> None:
    connections = Connections(in_all=100, per_address=3)
    lines = [admit(connections, "192.0.2.1", port) for port in range(3)]
    connections.set_waiting(("192.0.2.1", 0), False)
    fourth = admit(connections, "192.0.2.1", 3)
    assert fourth is not None
    assert [line.down for line in lines] == [False, True, False]
    connections.release(lines[1], ("192.0.2.1", 1))  # once more: it is not counted twice
    for port in (2, 3):
        connections.set_waiting(("192.0.2.1", port), False)
    assert admit(connections, "192.0.2.1", 4) is None, "all are in use"
    assert admit(connections, "192.0.2.2", 4) is not None
    connections.release(fourth, ("192.0.2.1", 3))
    assert admit(connections, "192.0.2.1", 5) is not None


def test_when_all_are_taken_the_one_with_the_most_gives_way() -> None:
    connections = Connections(in_all=6, per_address=5)
    many = [admit(connections, "192.0.2.1", port) for port in range(5)]
    one = admit(connections, "192.0.2.2", 0)
    assert admit(connections, "192.0.2.3", 0) is not None
    assert [line.down for line in many] == [True, False, False, False, False]
    assert not one.down


def test_a_proxy_has_no_limit_of_its_own() -> None:
    connections = Connections(in_all=10, per_address=2, proxies=("10.0.0.1",))
    lines = [admit(connections, "10.0.0.1", port) for port in range(10)]
    assert all(line is not None and not line.down for line in lines)


def test_a_subscriber_counts_once() -> None:
    connections = Connections(in_all=100, per_address=2)
    lines = [admit(connections, f"2001:db8::{host}", 1) for host in range(4)]
    assert [line.down for line in lines] == [True, True, False, False]


def test_300_half_sent_requests_stop_neither_others_nor_their_sender(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEADERS_S", 60.0)
    url = thread_server()
    with attacks.half_sent_requests(url, count=300) as lines:
        for source in (attacks.VISITOR, attacks.ATTACKER):
            began = time.monotonic()
            response, _ = attacks.request(url, "GET", "/edgeapp/user", source=source)
            assert response.status == 200
            assert time.monotonic() - began < 30, "it does not wait for their end"
        assert attacks.still_open(lines) <= 128


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
        "HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4",
        "HTTP/1.0\r\nTransfer-Encoding: chunked",
        "HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5",
        "HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "HTTP/1.1\r\nTransfer-Encoding: chunked, identity",
        "HTTP/1.1\r\nTransfer-Encoding : chunked",
        "HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0",
    ],
)
def test_no_request_is_smuggled_in_a_body_of_ambiguous_length(
    thread_server: Callable[..., str], head: str
) -> None:
    """A proxy that reads the other length would take the second request for a part of the first."""
    log: list[str] = []
    parts = urlsplit(thread_server(log=log.append))
    with socket.create_connection((parts.hostname or "", parts.port or 0), 30) as line:
        hidden = "0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        protocol, _, fields = head.partition("\r\n")
        line.sendall(
            f"POST /translate {protocol}\r\nHost: 127.0.0.1\r\n{fields}\r\n\r\n{hidden}".encode()
        )
        reply = b""
        while some := line.recv(1 << 16):  # the server closes the connection
            reply += some
    assert reply.split(b" ", 2)[1] in (b"400", b"501")
    assert reply.count(b"HTTP/1.1 ") == 1
    assert log == []


def test_connections_in_all_are_limited(thread_server: Callable[..., str]) -> None:
    url = thread_server(connections=Connections(in_all=40, per_address=30))
    with ExitStack() as stack:
        lines = []
        for host in range(10, 14):
            some = attacks.half_sent_requests(url, source=f"127.0.1.{host}", count=25)
            lines += stack.enter_context(some)
        assert attacks.request(url, "GET", "/edgeapp/user")[0].status == 200
        assert attacks.still_open(lines) <= 40


@pytest.mark.slow
def test_tls_handshakes_that_do_not_end_are_limited(
    thread_server: Callable[..., str], tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    url = thread_server(ssl_certfile=cert, ssl_keyfile=key)
    parts = urlsplit(url)
    trusting = ssl.create_default_context(cafile=cert)
    trusting.check_hostname = False
    with attacks.half_sent_requests(url, count=300, start=b"\x16\x03\x01") as lines:
        connection = HTTPSConnection("127.0.0.1", parts.port, timeout=60, context=trusting)
        connection.request("GET", "/edgeapp/user")
        assert connection.getresponse().status == 200
        connection.close()
        assert attacks.still_open(lines) <= 128


def test_a_refused_websocket_fills_no_log(
    thread_server: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    url = thread_server()
    with (
        pytest.raises(InvalidStatus) as refused,
        attacks.open_tab(url, origin="http://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403
    assert "default-src" in refused.value.response.headers["content-security-policy"]
    assert capfd.readouterr().err == ""


def test_open_tabs_are_not_closed_for_new_connections(thread_server: Callable[..., str]) -> None:
    url = thread_server(connections=Connections(in_all=100, per_address=5))
    with attacks.open_tab(url, source=attacks.ATTACKER) as tab:
        tab.recv(60)
        with attacks.half_sent_requests(url, count=20):
            attacks.request(url, "GET", "/edgeapp/user", source=attacks.ATTACKER)
            assert "models" in attacks.ask(tab, {"type": "models"})


def received_until_closed(line: socket.socket) -> bytes:
    """What the server sends until it closes a connection."""
    received = b""
    try:
        while block := line.recv(65536):
            received += block
    except ConnectionResetError:
        pass
    return received


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), 60, (attacks.ATTACKER, 0))


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_headers_that_do_not_arrive_end_the_connection(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(protocols, "HEADERS_S", 0.5)
    url, began = thread_server(), time.monotonic()
    with connect(url) as line:
        line.sendall(start)
        received = received_until_closed(line)
    assert received == b""
    assert time.monotonic() - began > 0.3


def test_the_headers_of_a_second_request_have_a_limit_too(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEADERS_S", 0.5)
    url, began = thread_server(), time.monotonic()
    with connect(url) as line:
        line.sendall(b"GET /edgeapp/user HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(b"GET / HTT")
        received_until_closed(line)
    assert time.monotonic() - began > 0.3


def test_a_body_that_trickles_ends_the_connection(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "BODY_S", 0.5)
    head = b"POST /edgeapp/export HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"
    url, began = thread_server(), time.monotonic()
    with connect(url) as line:
        line.sendall(head)
        with pytest.raises(OSError, match="reset|Broken pipe"):  # noqa: PT012
            while time.monotonic() - began < 60:
                line.sendall(b"x")
                time.sleep(0.05)
    assert time.monotonic() - began > 0.3


@pytest.mark.slow
def test_a_slow_line_may_send_a_large_body(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six times the time of the first byte, as long as it is faster than the lowest rate."""
    monkeypatch.setattr(protocols, "BODY_S", 0.5)
    # Far below the rate that is sent: on a busy machine there are pauses.
    monkeypatch.setattr(protocols, "BODY_BYTES_PER_S", 400)
    blocks, block = 30, b"x" * 4_000
    head = b"POST /edgeapp/export HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += b"Content-Length: %d\r\n\r\n" % (blocks * len(block))
    with connect(thread_server()) as line:
        line.sendall(head + block)
        for _ in range(blocks - 1):
            time.sleep(0.1)
            line.sendall(block)
        received = received_until_closed(line)
    assert received.startswith(b"HTTP/1.1 400")
    assert b"not a transcript" in received


def test_a_response_that_is_not_read_ends_the_connection(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "STALLED_S", 0.5)
    url = thread_server()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(60)
        line.connect((urlsplit(url).hostname, urlsplit(url).port))
        cue = {"start": 1, "end": 2, "text": "a" * 200_000}
        body = json.dumps({"format": "txt", "cues": [cue]}).encode()
        head = b"POST /edgeapp/export HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
        with pytest.raises(OSError, match="reset|Broken pipe"):  # noqa: PT012
            for _ in range(200):  # more than the system's buffers hold
                line.sendall(head % len(body) + body)


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /edgeapp/export HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\nx\r\n" * 50_000,
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00",  # TLS
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"a" * 700_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_an_invalid_request_gets_an_error_with_the_security_headers(
    thread_server: Callable[..., str], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEADERS_S", 60.0)
    monkeypatch.setattr(protocols, "BODY_S", 60.0)
    url, began = thread_server(), time.monotonic()
    with connect(url) as line:
        try:
            line.sendall(sent)
            received = received_until_closed(line)
        except (BrokenPipeError, ConnectionResetError):
            return  # closed before all was sent
    if received:  # else the reset came before it
        assert received.startswith(b"HTTP/1.1 400")
        assert b"x-content-type-options: nosniff" in received.lower()
    assert time.monotonic() - began < 30, "it does not wait for the rest of the request"


@pytest.mark.slow
def test_a_flood_of_pings_that_are_not_answered_does_not_fill_the_memory(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does not read the answers is disconnected."""
    monkeypatch.setattr(protocols, "STALLED_S", 1.0)
    ping = b"\x89\xfd" + bytes(4) + bytes(125)
    never_read = threading.Event()
    with attacks.open_tab(thread_server()) as tab:
        tab.recv(60)
        line = tab.socket
        # The reading thread of the client waits with the first answer.
        tab.protocol.receive_data = lambda data: never_read.wait(60)  # type: ignore[method-assign]
        line.settimeout(60)
        try:
            with pytest.raises(OSError, match="reset|Broken pipe"):  # noqa: PT012
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    line.sendall(ping * 100)
        finally:
            never_read.set()
