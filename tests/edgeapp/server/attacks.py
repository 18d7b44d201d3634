"""What one visitor may do to a server, and what a second visitor waits meanwhile.

Every function takes the page's address, as `edgeapp ui` prints it, and the loopback address that
the visitor comes from. `python -m tests.edgeapp.server.attacks NAME URL` runs one of ATTACKS in a
process of its own, so that it takes no time from the process that measures.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

__all__ = [
    "ATTACKER",
    "ATTACKS",
    "FOREIGN_HOSTS",
    "FOREIGN_ORIGINS",
    "HIDDEN_PATHS",
    "VISITOR",
    "Waits",
    "ask",
    "attacking",
    "half_sent_requests",
    "large_export",
    "login_flood",
    "message_flood",
    "open_tab",
    "request",
    "still_open",
    "tiny_uploads",
    "waits",
    "warm_up",
]

# On Linux every address of 127.0.0.0/8 is this machine.
VISITOR, ATTACKER = "127.0.0.3", "127.0.0.2"
_TIMEOUT_S = 60.0

FOREIGN_HOSTS = (
    "evil.example", "127.evil.example", "127.0.0.1.evil.example", "192.168.0.7", "::1",
    "127.0.0.1@evil.example", "localhost.evil.example:7860", "[::2]:7860", "0.0.0.0",
)  # fmt: skip
FOREIGN_ORIGINS = (
    "http://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:1",
    "file://", "http://localhost", "",
)  # fmt: skip
# Each must be answered with 404: routes of Gradio and of FastAPI, files, and their disguises.
HIDDEN_PATHS = (
    "/config", "/info", "/docs", "/openapi.json", "/queue/join", "/gradio_api/upload", "/file=x",
    "/gradio_api/file=/etc/passwd", "/proxy=http://evil.example", "/pwa_icon/99999999",
    "/monitoring/x", "/theme.css/", "//theme.css", "/theme.css%00", "/theme.css%0a", "/%2e%2e/x",
    "/assets/..%2f..%2froutes.py", "/edgeapp/static/..%2fpage.py", "/edgeapp/static/live.html",
    "/edgeapp/static/" + "a" * 9_000 + ".js",
)  # fmt: skip


def request(
    url: str,
    method: str,
    path: str,
    *,
    source: str = VISITOR,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[HTTPResponse, bytes]:
    """One HTTP request on a connection of its own.

    Args:
        url: Of the page.
        method: The HTTP method.
        path: Not encoded again.
        source: The address that the request comes from.
        body: Bytes, or an iterable of bytes, which is sent in chunks.
        headers: Further headers; "host" replaces the right one.

    Returns:
        The response and its body.
    """
    connection = HTTPConnection(
        *_host_and_port(url), timeout=_TIMEOUT_S, source_address=(source, 0)
    )
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


@contextmanager
def open_tab(
    url: str,
    *,
    source: str = VISITOR,
    origin: str | None = None,
    headers: dict[str, str] | None = None,
) -> Iterator[ClientConnection]:
    """The WebSocket of a tab of the page. Its first message is the server's hello.

    Args:
        url: Of the page.
        source: The visitor's address.
        origin: The site whose page it is; None: the server's own.
        headers: Further headers, such as a cookie.
    """
    line = socket.create_connection(_host_and_port(url), _TIMEOUT_S, (source, 0))
    with connect(
        f"ws://{urlsplit(url).netloc}/edgeapp/session",
        sock=line,
        origin=origin or url.rstrip("/"),  # type: ignore[arg-type]
        additional_headers=headers,
        compression=None,
        max_size=None,
        max_queue=None,
        close_timeout=1,
        ping_interval=None,
    ) as tab:
        yield tab


def ask(tab: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request of a tab; other messages are skipped."""
    tab.send(json.dumps({**message, "id": 1}))
    while True:
        reply = json.loads(tab.recv(_TIMEOUT_S))
        if reply["type"] == "reply":
            return dict(reply)


@dataclass
class Waits:
    """Seconds that a visitor waited for each reply.

    Attributes:
        requests: HTTP requests, each on a connection of its own.
        messages: Requests on the WebSocket of a tab.
        failures: Requests that got no reply.
    """

    requests: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def longest(self) -> float:
        """The longest of all waits."""
        return max((*self.requests, *self.messages), default=float("inf"))

    def __str__(self) -> str:
        def figures(waits: list[float]) -> str:
            if not waits:
                return "none"
            middle, most = statistics.median(waits), max(waits)
            return f"{len(waits)} times, p50 {1000 * middle:.0f} ms, max {1000 * most:.0f} ms"

        failed = f"; {len(self.failures)} failed: {self.failures[:3]}" if self.failures else ""
        return f"requests {figures(self.requests)}; messages {figures(self.messages)}{failed}"


def waits(url: str, while_running: Callable[[float], bool], *, source: str = VISITOR) -> Waits:
    """What a visitor waits who opens a tab and uses it.

    Args:
        url: Of the page.
        while_running: Given the seconds since the start, whether to go on.
        source: The visitor's address.
    """
    waited, began = Waits(), time.monotonic()
    with ExitStack() as stack:
        tab: ClientConnection | None = None
        while while_running(time.monotonic() - began):
            try:
                started = time.monotonic()
                response, _ = request(url, "GET", "/edgeapp/user", source=source)
                if response.status != 200:
                    raise HTTPException(f"status {response.status}")
                waited.requests.append(time.monotonic() - started)
                started = time.monotonic()
                if tab is None:
                    tab = stack.enter_context(open_tab(url, source=source))
                ask(tab, {"type": "picker_options"})
                waited.messages.append(time.monotonic() - started)
            except (OSError, HTTPException, WebSocketException) as error:
                waited.failures.append(f"{type(error).__name__}: {error}")
                tab = None
            time.sleep(0.02)
    return waited


def warm_up(url: str) -> None:
    """Wait until the server has loaded its models, which it does at its start."""
    deadline = time.monotonic() + _TIMEOUT_S
    with open_tab(url) as tab:
        while not any(model["loaded"] for model in ask(tab, {"type": "models"})["models"]):
            assert time.monotonic() < deadline, "no model was loaded"
            time.sleep(0.2)


def message_flood(
    url: str,
    *,
    source: str = ATTACKER,
    count: int = 15_000,
    message: dict[str, Any] | None = None,
    seconds: float = 5.0,
) -> int:
    """Send messages as fast as the server takes them.

    Args:
        url: Of the page.
        source: The attacker's address.
        count: The number of messages.
        message: Each of them; None: a request of the picker options.
        seconds: How long to wait for the replies.

    Returns:
        The number of replies.
    """
    replies = 0
    with suppress(WebSocketException, OSError), open_tab(url, source=source) as tab:
        text = json.dumps(message or {"type": "picker_options", "id": 1}).encode()
        line = tab.socket
        line.settimeout(seconds)
        with suppress(TimeoutError):
            line.sendall(_frame(text) * count)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            tab.recv(left)
            replies += 1
    return replies


@contextmanager
def half_sent_requests(
    url: str, *, source: str = ATTACKER, count: int = 300, start: bytes | None = None
) -> Iterator[list[socket.socket]]:
    """Connections on which a request has begun and does not end.

    Args:
        url: Of the page.
        source: The attacker's address.
        count: The number of connections.
        start: What is sent of each request; None: a part of its headers.
    """
    start = start or f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nX-Slow: ".encode()
    with ExitStack() as stack:
        lines = []
        for _ in range(count):
            with suppress(OSError):
                line = socket.create_connection(_host_and_port(url), 2, (source, 0))
                lines.append(stack.enter_context(line))
                line.sendall(start)
        yield lines


def still_open(lines: list[socket.socket]) -> int:
    """How many of the connections the server has not closed."""
    count = 0
    for line in lines:
        line.setblocking(False)
        try:
            count += bool(line.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def large_export(url: str, *, source: str = ATTACKER, megabytes: float = 56.0) -> int:
    """Export a transcript with very many cues.

    Args:
        url: Of the page.
        source: The attacker's address.
        megabytes: The size of the request, in MiB.

    Returns:
        The status of the response; 0 if the server closed the connection.
    """
    cue = b'{"start":1.0,"end":2.0,"text":"Good morning."}'
    count = int(megabytes * (1 << 20)) // (len(cue) + 1)
    body = b'{"format":"srt","language":"en","cues":[' + b",".join([cue] * count) + b"]}"
    try:
        response, _ = request(url, "POST", "/edgeapp/export", source=source, body=body)
    except (OSError, HTTPException):
        return 0
    return response.status


@contextmanager
def tiny_uploads(
    url: str, *, source: str = ATTACKER, count: int = 4, finished: bool = True
) -> Iterator[list[int]]:
    """Tabs that upload three bytes each and do not transcribe them.

    Args:
        url: Of the page.
        source: The attacker's address.
        count: The number of tabs.
        finished: Send all three bytes; False: two of them, and then nothing.

    Yields:
        The statuses of the finished uploads.
    """
    with ExitStack() as stack:
        statuses = []
        for _ in range(count):
            tab = stack.enter_context(open_tab(url, source=source))
            path = f"/edgeapp/upload/{json.loads(tab.recv(_TIMEOUT_S))['session']}"
            if finished:
                statuses.append(request(url, "PUT", path, source=source, body=b"abc")[0].status)
                continue
            line = socket.create_connection(_host_and_port(url), _TIMEOUT_S, (source, 0))
            stack.enter_context(line)
            head = f"PUT {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Length: 3\r\n"
            line.sendall(f"{head}\r\nab".encode())
        yield statuses


def login_flood(
    url: str,
    *,
    source: str = ATTACKER,
    count: int = 30,
    user: str = "anna",
    forwarded_for: Callable[[int], str] | None = None,
) -> list[int]:
    """Guess passwords.

    Args:
        url: Of the page.
        source: The attacker's address.
        count: The number of guesses.
        user: Whose password is guessed.
        forwarded_for: The X-Forwarded-For header of each guess.

    Returns:
        The status of each response.
    """
    statuses = []
    for number in range(count):
        form = urlencode({"user": user, "password": f"guess {number}"})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if forwarded_for is not None:
            headers["x-forwarded-for"] = forwarded_for(number)
        statuses.append(
            request(url, "POST", "/login", source=source, body=form, headers=headers)[0].status
        )
    return statuses


def _frame(payload: bytes) -> bytes:
    """A masked WebSocket text frame; the mask is 0."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else bytes([0xFE]) + size.to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + payload


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _repeat_export(url: str) -> None:
    for _ in range(2):
        large_export(url)


def _hold_half_sent(url: str) -> None:
    with half_sent_requests(url):
        time.sleep(3)


def _hold_uploads(url: str) -> None:
    with tiny_uploads(url):
        time.sleep(3)


def _flood_texts(url: str) -> None:
    text = {"type": "text", "number": 1, "language": "en", "target": "de", "text": "Good morning."}
    message_flood(url, message=text, count=3_000)


def _flood_audio(url: str) -> None:
    live = json.dumps({"type": "live", "rate": 16_000}).encode()
    with suppress(WebSocketException, OSError), open_tab(url, source=ATTACKER) as tab:
        tab.socket.settimeout(5)
        # Binary frames of one sample each.
        tab.socket.sendall(_frame(live) + (b"\x82\x82" + bytes(6)) * 100_000)
        time.sleep(3)


ATTACKS: dict[str, Callable[[str], object]] = {
    "messages": message_flood,
    "texts": _flood_texts,
    "audio": _flood_audio,
    "half-sent": _hold_half_sent,
    "export": _repeat_export,
    "uploads": _hold_uploads,
}


@contextmanager
def attacking(name: str, url: str) -> Iterator[Callable[[float], bool]]:
    """Run one of ATTACKS in a process of its own.

    Yields:
        Whether it still runs; for `waits`.
    """
    process = subprocess.Popen([sys.executable, "-m", "tests.edgeapp.server.attacks", name, url])
    try:
        yield lambda seconds: process.poll() is None and seconds < _TIMEOUT_S
    finally:
        process.kill()
        process.wait()


def _main() -> None:
    """Run an attack; without one, measure what a visitor waits during each."""
    if len(sys.argv) == 3:
        ATTACKS[sys.argv[1]](sys.argv[2])
        return
    url = sys.argv[1]
    print(f"{'alone':>10}: {waits(url, lambda seconds: seconds < 3)}", flush=True)
    for name in ATTACKS:
        with attacking(name, url) as running:
            print(f"{name:>10}: {waits(url, running)}", flush=True)


if __name__ == "__main__":
    _main()
