"""The server under random requests and messages: each is answered, none brings it down."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.campaign import part
from tests.campaign.child import run_limited
from tests.campaign.mutate import mutate
from tests.campaign.part import MB, Case, Failed, Limits
from tests.campaign.sandbox import sandbox
from tests.edgeapp.server.test_gradio_routes import (
    CALLED,
    METHODS,
    NEEDED,
    OURS,
    declared,
    in_the_source,
    requests_for,
)
from tests.fixtures.browser import serving

ANSWER_S = 2.0
_PEOPLE, _PASSWORD = ("anna", "ben"), "campaign"
MAX_SERVER_BYTES = 1500 * MB
EVIL_HOSTS = (
    "evil.example", "127.evil.example", "127.0.0.1.evil.example", "192.168.0.7", "", "::1",
    "127.0.0.1/login?", "localhost.evil.example:7860", "[::2]:7860", "[::1", "127.0.0.1:x:y",
    "127.0.0.1@evil.example", "evil.example#127.0.0.1", "0.0.0.0", "[::]", "0", "2130706433.",
    "localhost.", "LOCALHOST.evil", "127.0.0.256", "\t", "a" * 5000, "127.0.0.1 evil.example",
)  # fmt: skip
FOREIGN = ("http://evil.example", "null", "https://127.0.0.1:{port}.evil.example", "http://",
           "http://127.0.0.1", "http://localhost:{port}", "file://", "x", "http://[::1]:{port}",
           "http://127.0.0.1:{port}@evil.example",
           "http://evil.example/127.0.0.1:{port}")  # fmt: skip
HEADERS = ("X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: evil.example",
           "Transfer-Encoding: chunked", "Content-Length: -1", "Content-Length: 5",
           "Range: bytes=0-0,1-1,5-", "Expect: 100-continue",
           "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Cookie: edgeapp=" + "a" * 3000,
           "Accept-Encoding: gzip, br, zstd, x", "Sec-Fetch-Site: cross-site", "If-None-Match: *",
           "Content-Type: multipart/form-data; boundary=" + "b" * 300, "Authorization: Basic Og==",
           "X-Gradio-Server: http://evil.example", "Host: evil.example",
           "A: " + "b" * 30_000)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 16_000, 48_000, 1e308, -0.5, 2**62, 2**63, 10**400, "", "a",
    "demo", "demo-en-de", "en", "de", "auto", "../..", "/etc/passwd", "\x00", "\ud800",
    "\U0001f600",
    "a" * 300, "Good morning. " * 40, [], [1], [[[]]], {}, {"a": {}}, "live", "file", "text",
    "pull", "http://127.0.0.1:9/x", "%", "' OR 1=1 --", '"', "*", "\u202e",
)  # fmt: skip
FIELDS = ("id", "name", "text", "number", "rate", "kind", "model", "language", "target", "search",
          "offset", "record", "records", "title", "translation", "instead", "keep", "cues",
          "sentences", "expected", "translation_model")  # fmt: skip
API = ("picker_options", "models", "load", "unload", "plan", "history", "record", "rename",
       "delete", "clear", "keep_text", "nonsense", "remove", "edit", "restore", "delete_sound",
       "translate_sentences", "align", "detect_language")  # fmt: skip
TASKS = ("live", "file", "text", "pull", "stop", "cancel")
KINDS = ("http", "http", "evil", "foreign", "route", "route", "route", "messages", "messages",
         "messages", "messages", "flood")  # fmt: skip


_SOME_ROUTES = (
    ["GET", "/config", ""], ["POST", "/gradio_api/upload", ""], ["GET", "/theme.css", "v=1"],
    ["GET", "/file=/etc/passwd", ""], ["GET", "/proxy=http://127.0.0.1:9/x", ""],
)  # fmt: skip


class _Ended(Failed):
    """A server has ended."""


@dataclass
class _Served:
    """A server. seen: the bytes of its log that were looked at."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    seen: int = 0


class Campaign(part.Part):
    """Labels: http (anything), evil (host), foreign (origin), route (Gradio's), messages, flood.

    Data: the bytes of a request, with {port}; or a message per line, those that begin with ~ as
    binary audio.
    """

    name = "server"
    limits = Limits(300 * MB, 4096 * MB, cpu_s=60, wall_s=120)
    shrinks = True
    fixed = 2 * len(KINDS)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = ExitStack()

    def prepare(self) -> None:
        self.routes = list(_SOME_ROUTES)
        if not self.sampling:
            self.routes = self._all_routes()
        self._start()

    def _all_routes(self) -> list[list[str]]:
        """(method, target, query) of plain and extreme requests for each route of Gradio."""
        targets = self.folder / "targets.json"
        found = run_limited(lambda _: _write_routes(targets), Limits(1200 * MB), self.folder)
        if found.failure:
            raise Failed(f"Gradio's routes cannot be listed: {found.failure}")
        routes: list[list[str]] = json.loads(targets.read_text("utf-8"))
        return routes

    def _start(self) -> None:
        """A server of this machine's user, and one that several people use."""
        users = self.folder / "users.txt"
        users.write_text("".join(f"{name}:{_PASSWORD}\n" for name in _PEOPLE), "utf-8")
        self.server = self._serve("server")
        self.served = [self.server]
        if not self.sampling:
            shared = self._serve("shared", "--auth", str(users))
            self.served.append(shared)
            self.tabs = {
                name: {"port": shared.port, "cookie": _log_in(shared.port, name)}
                for name in _PEOPLE
            }
        with self._connect() as tab:  # the models are loaded
            _ask(tab, {"type": "text", "number": 0, "text": "I am tired.",
                       "translation_model": "demo-en-de", "language": "en", "target": "de"},
                 lambda answer: answer["type"] in ("text_done", "error"), 60)  # fmt: skip

    def _serve(self, name: str, *options: str) -> _Served:
        log = self.folder / f"{name}.log"
        options = ("--device", "cpu", "--threads", "1", "--max-minutes", "1", *options)
        environment = sandbox(self.folder / name)
        server = self._stack.enter_context(serving(environment, *options, log=log))
        return _Served(server.process, urlsplit(server.url).port or 0, log)

    def close(self) -> None:
        with suppress(AssertionError):  # a traceback in the log; `check` has found it
            self._stack.close()

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        kind = KINDS[seed % len(KINDS)]
        if kind in ("messages", "flood"):
            count = random.choice((1, 3, 8)) if kind == "messages" else 300
            return Case(kind, b"\n".join(_random_message(random) for _ in range(count)))
        method, target = random.choice(METHODS[:-1]), random.choice(("/", "/edgeapp/export"))
        if kind in ("route", "http"):
            method, target, query = random.choice(self.routes)
            target += f"?{query}" if query else ""
        headers = ["Host: 127.0.0.1:{port}", "Connection: close"]
        if kind == "evil":
            headers[0] = f"Host: {random.choice(EVIL_HOSTS)}"
        elif kind == "foreign":
            headers.append(f"Origin: {random.choice(FOREIGN)}")
        elif kind == "http":
            headers += random.sample(HEADERS, random.choice((0, 1, 3)))
        head = "\r\n".join([f"{method} {target or '/'} HTTP/1.1", *headers, "", ""])
        data = head.encode("utf-8", "surrogatepass")
        if kind == "http":
            data += random.choice((b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"{}"))
            data = mutate(data, random) if random.random() < 0.6 else data
        return Case(kind, data)

    def sample(self) -> list[Case]:
        return [self.generate(seed) for seed in range(len(KINDS) - 1)]

    def run(self, case: Case, folder: Path) -> str:
        if case.label == "messages":
            return self._send_messages(case.data.split(b"\n"))
        if case.label == "flood":
            return self._flood(case.data.split(b"\n"))
        data = case.data.replace(b"{port}", str(self.server.port).encode())
        status = self._status(data)
        if status >= 500 and not (status == 503 and b"/upload/" in data):
            raise Failed(f"status {status}")
        path = data.split(b" ")[1].decode() if case.label == "route" else ""
        allowed = {("GET", target) for target in (*OURS, *NEEDED.values(), *CALLED.values())}
        if case.label == "evil" and status != 400:
            raise Failed(f"status {status} for another host")
        if case.label == "foreign" and status not in (400, 403, 404):
            raise Failed(f"status {status} for another origin")
        if case.label == "route" and status not in (0, 400, 404, 405, 411, 414, 431):
            method, target = data.split(b" ")[0].decode(), path.partition("?")[0]
            if (method.upper(), target) not in allowed and method != "HEAD":
                raise Failed(f"status {status} for {method} {target[:80]}")
        return f"{case.label}: {status}"

    def check(self) -> None:
        """The servers live, answer at once, say nothing of errors, and hold little memory."""
        try:
            for served in self.served:
                _check_process(served)
        except _Ended:
            self.close()
            self._start()
            raise
        plain = f"GET /edgeapp/user HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode()
        if self._status(plain) != 200:
            raise Failed("the server does not answer a plain request")

    def _status(self, request: bytes) -> int:
        """The status of the response; 0 if the connection is closed or waits for more."""
        with socket.create_connection(("127.0.0.1", self.server.port), 5) as connection:
            connection.settimeout(_patience())
            try:
                connection.sendall(request)
                answer = connection.recv(4096)
            except (TimeoutError, ConnectionError):
                return 0
        words = answer.split(b" ", 2)
        return int(words[1]) if answer.startswith(b"HTTP/1.") and words[1].isdigit() else 0

    def _connect(self, person: str | None = None) -> Any:
        """A tab of the first server, or of a person on the one with logins."""
        from websockets.sync.client import connect

        tab = {"port": self.server.port, "cookie": ""} if person is None else self.tabs[person]
        return connect(
            f"ws://127.0.0.1:{tab['port']}/edgeapp/session",
            origin=f"http://127.0.0.1:{tab['port']}",  # type: ignore[arg-type]
            additional_headers={"Cookie": str(tab["cookie"])},
            max_size=None, compression=None, proxy=None,
        )  # fmt: skip

    def _send_messages(self, lines: list[bytes]) -> str:
        """Each message that asks for something is answered in time."""
        answers = 0
        with self._connect() as tab:
            for line in lines:
                if line.startswith(b"~"):
                    tab.send(line[1:])
                    continue
                text = line.decode("utf-8", "replace")
                message = _parsed(text)
                kind = message.get("type")
                if isinstance(kind, str) and kind in ("stop", "cancel"):
                    tab.send(text)
                    continue
                if kind in ("live", "text", "file", "pull"):
                    # What a task computes takes its time; that it began, does not.
                    expected = (kind, "error", "idle", "warning", "download")
                    _ask(tab, text, lambda a, e=expected: a["type"].startswith(e), 20.0)
                    tab.send(json.dumps({"type": "cancel", "kind": kind}))
                else:
                    _ask(tab, text, lambda a, m=message: _answers(a, m), _patience())
                answers += 1
        return "messages answered" if answers else "messages"

    def _flood(self, lines: list[bytes]) -> str:
        """One person sends as fast as they can; another is answered in time."""
        over, slowest = threading.Event(), 0.0

        def send() -> None:
            with self._connect("anna") as tab:
                reader = threading.Thread(target=lambda: [None for _ in tab], daemon=True)
                reader.start()
                while not over.is_set():
                    for line in lines:
                        if over.is_set():
                            break
                        text = line.startswith(b"~")
                        tab.send(line[1:] if text else line.decode("utf-8", "replace"))

        flooding = threading.Thread(target=_quietly, args=(send,), daemon=True)
        with self._connect("ben") as tab:
            flooding.start()
            try:
                for number in range(8):
                    began = time.monotonic()
                    kind = ("models", "history", "picker_options")[number % 3]
                    message = {"type": kind, "id": f"mine {number}"}
                    _ask(tab, message, lambda a, m=message: _answers(a, m), _patience())
                    slowest = max(slowest, time.monotonic() - began)
                    time.sleep(0.1)
            finally:
                over.set()
                flooding.join(10)
        return f"flood: answered within {'0.5' if slowest < 0.5 else '2'} s"


def _check_process(served: _Served) -> None:
    content = served.log.read_bytes()
    said, served.seen = content[served.seen :].decode("utf-8", "replace"), len(content)
    if (code := served.process.poll()) is not None:
        raise _Ended(f"the server ended with exit code {code}: {said[-2000:]}")
    if "Traceback" in said:
        raise Failed(f"the server prints: {said[-3000:]}")
    statm = Path(f"/proc/{served.process.pid}/statm").read_text("ascii").split()
    used = int(statm[1]) * os.sysconf("SC_PAGE_SIZE")
    if used > MAX_SERVER_BYTES:
        raise Failed(f"the server holds {used >> 20} MB")


def _log_in(port: int, person: str) -> str:
    """The cookie of a person."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login", f"user={person}&password={_PASSWORD}", form)
    response = connection.getresponse()
    if response.status != 303:
        raise Failed(f"{person} cannot log in: status {response.status}")
    return str(response.headers["set-cookie"]).partition(";")[0]


def _quietly(send: Any) -> None:
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed, OSError):  # the server may hang up on a flood
        send()


def _patience() -> float:
    """ANSWER_S, longer where other programs use the processors."""
    return ANSWER_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _ask(tab: Any, message: Any, is_answer: Any, seconds: float) -> None:
    """Send a message and wait for its answer. Raises Failed if there is none in time."""
    tab.send(message if isinstance(message, str) else json.dumps(message))
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = json.loads(tab.recv(max(0.0, deadline - time.monotonic())))
        except TimeoutError:
            raise Failed(f"no answer within {seconds:.1f} s to {str(message)[:300]}") from None
        if is_answer(answer):
            if "unexpected error" in str(answer.get("message")) + str(answer.get("error")):
                raise Failed(f"{str(answer)[:300]} to {str(message)[:300]}")
            return


def _parsed(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _answers(answer: dict[str, Any], message: dict[str, Any]) -> bool:
    if answer["type"] == "reply":
        return json.dumps(answer.get("id")) == json.dumps(message.get("id"))
    return answer["type"] == "error"


def _random_message(random: Random) -> bytes:
    roll = random.random()
    if roll < 0.1:
        return b"~" + bytes(b for b in random.randbytes(random.choice((0, 1, 2, 320))) if b != 10)
    if roll < 0.2:
        texts = ("", "[]", "null", "{", "[" * 5000, '{"type":', "\x00", '{"type": []}', "1e999",
                 '{"type": "text", "text": "' + "a" * 50_000 + '"}')  # fmt: skip
        return random.choice(texts).encode()
    kind = random.choice((*API, *TASKS))
    message: dict[str, Any] = {"type": kind, "id": random.randrange(1 << 20)}
    for field in random.sample(FIELDS, random.choice((0, 1, 2, 4, 8))):
        message[field] = random.choice(VALUES)
    message["type"] = kind
    return json.dumps(message).encode()


def _write_routes(path: Path) -> str:
    """All requests for Gradio's routes; in a process of its own, which Gradio leaves littered."""
    import asyncio
    import warnings

    warnings.simplefilter("ignore")
    from gradio.routes import App
    from starlette.routing import Mount

    from edgeapp.model_pool import ModelPool
    from edgeapp.server.app import make_app
    from edgeapp.server.options import ServerOptions
    from edgeapp.settings import Settings

    async def make() -> Any:
        return make_app(ModelPool(Settings(), listed_only=True), ServerOptions(), None)

    app, own = asyncio.new_event_loop().run_until_complete(make())
    inner: Any = app
    while not hasattr(inner, "routes"):  # behind the middleware
        inner = inner.app
    mounts = [route for route in inner.routes if isinstance(route, Mount)]
    (gradio,) = [mount.app for mount in mounts if isinstance(mount.app, App)]
    paths = sorted(set(declared(gradio.routes)) | in_the_source())
    requests = [list(request) for of in paths for request in requests_for(of)]
    http = [request for request in requests if request[0] != "WEBSOCKET" and " " not in request[1]]
    path.write_text(json.dumps(http), "utf-8")
    own.close()
    return ""
