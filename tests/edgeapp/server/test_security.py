"""Security of the server: hosts, origins, logins, uploads, limits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocketDisconnect
from uvicorn.server import ServerState
from websockets.protocol import State

from edgeapp.server.access.addresses import TrustedProxies, is_loopback
from edgeapp.server.access.auth import Logins
from edgeapp.server.access.hosts import parse_host_names
from edgeapp.server.options import ServerOptions, read_logins
from edgeapp.server.transport.protocols import WebSocketProtocol
from pipelines.errors import OptionError
from pipelines.hub import assets_folder

SAME_ORIGIN = {"origin": "http://127.0.0.1"}
SOCKET = "ws://127.0.0.1/edgeapp/session"
Client = Any


def refused(client: Client, headers: dict[str, str]) -> bool:
    """Whether a WebSocket with such headers is refused, with the headers of every response."""
    with pytest.raises(WebSocketDisconnect) as closed:  # noqa: SIM117
        with client.websocket_connect(SOCKET, headers=headers):
            pass
    denial: Any = closed.value
    assert "default-src 'self'" in denial.headers["content-security-policy"]
    return denial.status_code in (401, 403)


def close_code(socket: Any) -> int:
    """The close code of a connection, after what was sent before it."""
    with pytest.raises(WebSocketDisconnect) as closed:  # noqa: PT012
        while True:
            socket.receive_json()
    return int(closed.value.code)


def test_every_response_has_the_security_headers(serve: Callable[..., Client]) -> None:
    client, locked = serve(), serve(logins=(("anna", "one"),))
    evil = {"host": "evil.example"}
    responses = {
        200: client.get("/"),
        303: locked.get("/"),
        400: client.get("/", headers=evil),
        401: locked.get("/theme.css"),
        403: client.post("/logout", headers={"origin": "http://evil.example"}),
        404: client.get("/absent"),
        405: client.post("/manifest.json", headers=SAME_ORIGIN),
        500: client.get("/favicon.ico"),
    }
    for status, response in responses.items():
        assert response.status_code == status
        headers = response.headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "connect-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert responses[405].headers["allow"] == "GET, HEAD"


def test_other_hosts_and_origins_are_refused(serve: Callable[..., Client]) -> None:
    client = serve()
    names = (
        "evil.example", "127.evil.example", "127.0.0.1.evil.example", "192.168.0.7", "", "::1",
        "127.0.0.1/login?", "localhost.evil.example:7860", "[::2]:7860",
    )  # fmt: skip
    for name in names:
        assert client.get("/", headers={"host": name}).status_code == 400, name
    foreign = {"origin": "http://evil.example"}
    assert client.post("/edgeapp/export", headers=foreign, content=b"{}").status_code == 403
    assert refused(client, foreign)
    assert refused(client, {"origin": "null"})
    assert refused(client, {})
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        assert socket.receive_json()["type"] == "hello"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "localhost",
                                  "::1"])  # fmt: skip
def test_a_loopback_server_accepts_its_own_names(serve: Callable[..., Client], host: str) -> None:
    client = serve(host=host)
    address = f"[{host}]" if ":" in host else host
    for name in (address, f"{address}:7860", "LOCALHOST:7860"):
        assert client.get("/", headers={"host": name}).status_code == 200, name
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


MACHINE = "laptop.example.lan"
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]", MACHINE, "laptop", "laptop.local")
ADDRESSES = ("192.168.0.7", "10.0.0.1", "[fd00::1]", "0.0.0.0")
FOREIGN_NAMES = ("evil.example", "127.0.0.1.evil.example", "laptop.evil.example",
                 "host.docker.internal", "localhost.evil.example", "2130706433")  # fmt: skip
MALFORMED_HOSTS = (
    "127.0.0.1:80@evil.com", "evil.com@127.0.0.1", "127.0.0.1:80:80", "127.0.0.1:", "127.0.0.1:x",
    "127.0.0.1/x", "127.0.0.1#x", "127.0.0.1\\x", "127.0.0.1, evil.com", "127.0.0.1 evil.com",
    "[::1", "::1", "[::1]x", "[evil.com]", "127.0.0.1:999999", "a" * 300, "http://127.0.0.1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "accepted", "refused_names"),
    [
        ({}, OWN_NAMES[:3], (*OWN_NAMES[3:], *ADDRESSES, *FOREIGN_NAMES)),
        ({"host": "0.0.0.0", "open_to_all": True}, (*OWN_NAMES, *ADDRESSES), FOREIGN_NAMES),
        (
            {"proxies": TrustedProxies.parse(["127.0.0.1"]), "open_to_all": True},
            (*OWN_NAMES, *ADDRESSES),
            FOREIGN_NAMES,
        ),
        # A website whose name leads here has no cookie of this server.
        ({"host": "0.0.0.0"}, (*OWN_NAMES, *ADDRESSES, *FOREIGN_NAMES), ()),
    ],
    ids=["loopback", "open to all", "proxy, open to all", "login required"],
)
def test_a_website_whose_name_leads_here_is_not_this_machine(
    serve: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    accepted: tuple[str, ...],
    refused_names: tuple[str, ...],
) -> None:
    """DNS rebinding: Host and Origin agree, so that the page would pass for EdgeApp's own."""
    monkeypatch.setattr(
        "edgeapp.server.access.hosts.socket.gethostname", lambda: "Laptop.Example.LAN"
    )
    client = serve(**options)
    allowing = serve(**options, allow_hosts=parse_host_names(["Host.Docker.Internal"]))

    def status(client: Client, name: str) -> int:
        headers = {"host": name, "origin": f"http://{name.lower()}"}
        return int(client.get("/health", headers=headers).status_code)

    for name in accepted:
        for spelled in (name, f"{name}:7860", name.upper()):
            assert status(client, spelled) == 200, spelled
    for name in refused_names:
        for spelled in (name, f"{name}:7860"):
            assert status(client, spelled) == 400, spelled
    for name in (*MALFORMED_HOSTS, *([] if options.get("host") and not refused_names else [""])):
        assert status(client, name) == 400, name
        assert status(allowing, name) == 400, name
    assert status(allowing, "host.docker.internal:8000") == 200
    for near in ("x.host.docker.internal", "host.docker.internal.evil.example", "docker.internal"):
        assert status(allowing, near) == (400 if refused_names else 200), near
    if refused_names:
        answer = client.get("/v1/models", headers={"host": "host.docker.internal:8000"})
        assert "--allow-host host.docker.internal" in answer.json()["error"]["message"]
        with pytest.raises(WebSocketDisconnect) as closed:  # noqa: SIM117
            with client.websocket_connect(SOCKET, headers={
                "host": "evil.example", "origin": "http://evil.example"
            }):  # fmt: skip
                pass
        assert getattr(closed.value, "status_code", 0) == 400


@pytest.mark.parametrize("text", ["", "*", "*.example", "a:80", "http://a", "a/b", "a b", "a@b"])
def test_what_is_no_host_name_is_not_allowed(text: str) -> None:
    with pytest.raises(OptionError, match="--allow-host takes a name without a port"):
        parse_host_names([text])


def test_a_name_that_only_looks_like_loopback_is_not() -> None:
    assert not is_loopback("127.example.com")
    assert not is_loopback("127.0.0.1.example.com")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_cannot_embed_resources(serve: Callable[..., Client], site: str) -> None:
    client = serve()

    def seen_as(kind: str, mode: str, path: str) -> int:
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": kind}
        return int(client.get(path, headers=headers).status_code)

    assert seen_as("image", "no-cors", "/edgeapp/static/icon.png") == 403
    assert seen_as("script", "no-cors", "/edgeapp/static/frame.js") == 403
    assert seen_as("image", "no-cors", "/") == 403
    assert seen_as("iframe", "navigate", "/") == 403
    assert seen_as("document", "navigate", "/edgeapp/static/icon.png") == 403
    assert seen_as("document", "navigate", "/") == 200, "a link leads here"
    assert seen_as("document", "navigate", "/login") == 303


def test_without_a_login_only_public_routes_are_served(serve: Callable[..., Client]) -> None:
    client = serve(logins=(("anna", "one two"), ("ben", "three")))
    assert client.get("/").headers["location"] == "/login"
    for path in ("/edgeapp/user", "/theme.css", "/assets/a.js"):
        assert client.get(path).status_code == 401
    assert client.post("/edgeapp/export", content=b"{}").status_code == 401
    assert refused(client, SAME_ORIGIN)
    for user, password in (("anna", "three"), ("anna", ""), ("carl", "x"), ("", "")):
        wrong = client.post("/login", data={"user": user, "password": password})
        assert wrong.status_code == 403
        assert "Wrong name or password" in wrong.text
    right = client.post("/login", data={"user": "anna", "password": "one two"})
    assert right.status_code == 303
    assert "HttpOnly" in right.headers["set-cookie"]
    assert "SameSite=strict" in right.headers["set-cookie"]
    assert client.get("/").status_code == 200
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        assert socket.receive_json()["user"] == "anna"
    client.post("/logout")
    assert client.get("/").status_code == 303


def test_a_logout_closes_open_connections(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running task is cancelled and sends no more; other users' tasks go on."""
    begun = {name: threading.Event() for name in ("anna", "ben")}
    lines = iter(begun.items())
    ended: list[str] = []

    class Talker:
        kind = "text"

        def __init__(self, *arguments: object) -> None:
            self.name, self.event = next(lines)
            self.over = threading.Event()

        def run(self, send: Callable[[dict[str, Any]], None]) -> None:
            send({"type": "begun"})
            self.event.set()
            while not self.over.wait(0.01):
                send({"type": "more"})

        def cancel(self) -> None:
            ended.append(self.name)
            self.over.set()

    monkeypatch.setattr("edgeapp.server.socket.TextTask", Talker)
    client = serve(logins=(("anna", "one"), ("ben", "two")))
    client.post("/login", data={"user": "anna", "password": "one"})
    assert client.get("/edgeapp/user").json() == {"user": "anna"}
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as annas:
        annas.send_json({"type": "text", "text": "x"})
        assert begun["anna"].wait(60)
        client.cookies.clear()
        client.post("/login", data={"user": "ben", "password": "two"})
        with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as bens:
            bens.send_json({"type": "text", "text": "x"})
            assert begun["ben"].wait(60)
            client.post("/logout")
            assert close_code(bens) == 4403
            assert set(ended) == {"ben"}
        for _ in range(5):
            assert annas.receive_json()["type"] in ("hello", "begun", "more")
    assert client.get("/edgeapp/user").status_code == 401


def test_a_closing_browser_does_not_disturb_the_shutdown() -> None:
    async def end() -> Mock:
        config = uvicorn.Config(PlainTextResponse("x"), log_level="critical")
        config.load()
        protocol: Any = WebSocketProtocol(config, ServerState(), {})
        protocol.connection_made(transport := Mock())
        protocol.handshake_complete, protocol.conn.state = True, State.CLOSING
        protocol.shutdown()
        return transport

    assert asyncio.run(end()).close.called


def test_password_guessing_is_limited(
    serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.server.access.auth._FAILURE_DELAY_S", 0)
    client = serve(logins=(("anna", "one"),))
    answers = [client.post("/login", data={"user": "anna", "password": str(n)}) for n in range(11)]
    assert [answer.status_code for answer in answers] == [403] * 10 + [429]
    assert client.post("/login", data={"user": "anna", "password": "one"}).status_code == 429


def login_request(password: str, body_arrives: asyncio.Event | None = None) -> Request:
    """A request of /login whose body arrives after an event."""
    body = f"user=anna&password={password}".encode()

    async def receive() -> dict[str, Any]:
        if body_arrives is not None:
            await body_arrives.wait()
        return {"type": "http.request", "body": body}

    headers = [
        (b"content-length", str(len(body)).encode()),
        (b"content-type", b"application/x-www-form-urlencoded"),
    ]
    scope = {
        "type": "http", "method": "POST", "scheme": "http", "path": "/login", "query_string": b"",
        "headers": headers, "client": ("10.0.0.1", 1), "server": ("10.0.0.2", 80),
    }  # fmt: skip
    return Request(scope, receive)


def test_parallel_guesses_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeapp.server.access.auth._FAILURE_DELAY_S", 0)

    async def guess() -> list[int]:
        logins, arrive = Logins({"anna": "one"}), asyncio.Event()
        attempts = [
            asyncio.create_task(logins.log_in(login_request(str(n), arrive))) for n in range(30)
        ]
        await asyncio.sleep(0)  # all have begun, and wait for their bodies
        arrive.set()
        return [response.status_code for response in await asyncio.gather(*attempts)]

    assert sorted(asyncio.run(guess())) == [403] * 10 + [429] * 20


def test_only_failed_logins_of_the_last_minute_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeapp.server.access.auth._FAILURE_DELAY_S", 0)
    monkeypatch.setattr("edgeapp.server.access.login_attempts._WINDOW_S", 0.05)
    logins = Logins({"anna": "one"})

    async def log_in(password: str) -> int:
        return (await logins.log_in(login_request(password))).status_code

    for _ in range(15):
        assert asyncio.run(log_in("one")) == 303
    assert not logins._attempts._attempts
    assert asyncio.run(log_in("two")) == 403
    assert list(logins._attempts._attempts) == ["10.0.0.1"]
    time.sleep(0.06)
    assert asyncio.run(log_in("one")) == 303
    assert not logins._attempts._attempts


def test_an_unexpected_error_is_reported_to_its_tab(
    serve: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error", "/srv/secret")

    monkeypatch.setattr("edgeapp.server.page.page_api.PageApi.reply", fail)
    monkeypatch.setattr("edgeapp.server.socket.TextTask", fail)
    said = "unexpected error (OSError: Input/output error)"
    with serve().websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        assert socket.receive_json()["type"] == "hello"
        socket.send_json({"type": "models", "id": 1})
        assert socket.receive_json() == {"type": "reply", "id": 1, "error": said}
        socket.send_json({"type": "text", "number": 1, "text": "a"})
        answer = socket.receive_json()
        assert (answer["type"], answer["kind"], answer["message"]) == ("error", "text", said)
        socket.send_text("[" * 100_000)  # deeper than the parser goes
        assert "a message is a JSON object" in socket.receive_json()["message"]
    assert "Traceback" in capsys.readouterr().err


def test_uploads_have_limits(serve: Callable[..., Client]) -> None:
    client = serve(upload_mb=1)
    assert client.put("/edgeapp/upload/nobody", content=b"x").status_code == 404
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        path = f"/edgeapp/upload/{socket.receive_json()['session']}"
        too_much = client.put(path, content=b"x" * ((1 << 20) + 1))
        assert (too_much.status_code, "1 MB" in too_much.text) == (413, True)
        streamed = client.put(path, content=iter([b"x" * (1 << 19)] * 3))
        assert streamed.status_code == 413
        assert client.put(path, content=b"x" * 1000).json() == {"bytes": 1000}
        socket.send_json({"type": "live"})
        assert "rate is missing" in socket.receive_json()["message"]
        socket.send_json({"type": "live", "rate": 1})
        assert "1 Hz cannot be used" in socket.receive_json()["message"]
        socket.send_text("[]")
        assert "JSON object" in socket.receive_json()["message"]
        socket.send_json({"type": "nonsense", "id": 7})
        answer = socket.receive_json()
        assert (answer["id"], "unknown request type 'nonsense'" in answer["error"]) == (7, True)
        for kind in ([], {}, None, 3):
            socket.send_json({"type": kind, "id": 8})
            assert f"unknown request type {kind!r}" in socket.receive_json()["error"]
        socket.send_json({"type": "text", "number": 1, "text": "a" * 200_001})
        assert "the limit is 200,000" in socket.receive_json()["message"]
        socket.send_json({"type": "live", "rate": 16000, "model": "/etc"})
        assert "not among the models" in socket.receive_json()["message"]
    assert client.put(path, content=b"x").status_code == 404, "a closed tab sends nothing"


def test_an_invalid_choice_does_not_lose_the_recording(serve: Callable[..., Client]) -> None:
    client = serve(minutes=0.01)
    question = assets_folder() / "samples" / "question.flac"
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        path = f"/edgeapp/upload/{socket.receive_json()['session']}"
        client.put(path, content=question.read_bytes())
        socket.send_json({"type": "file", "name": "question.flac", "language": 7})
        assert "7 is not a valid choice" in socket.receive_json()["message"]
        socket.send_json({"type": "file", "name": "question.flac"})
        assert "question.flac lasts 0.1 minutes" in socket.receive_json()["message"]


def test_the_length_of_recordings_is_limited(serve: Callable[..., Client]) -> None:
    client = serve(minutes=0.01)
    question = assets_folder() / "samples" / "question.flac"
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        path = f"/edgeapp/upload/{socket.receive_json()['session']}"
        socket.send_json({"type": "file", "name": "question.flac"})
        assert "choose a file first" in socket.receive_json()["message"]
        client.put(path, content=question.read_bytes())
        socket.send_json({"type": "file", "name": "question.flac"})
        error = socket.receive_json()["message"]
        assert error == "question.flac lasts 0.1 minutes; the limit is 0.01 minutes"
        assert socket.receive_json()["type"] == "idle"


def test_the_number_of_uploads_is_limited(serve: Callable[..., Client]) -> None:
    client = serve(sessions=1)
    with (
        client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as one,
        client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as two,
    ):
        tokens = [socket.receive_json()["session"] for socket in (one, two)]
        assert client.put(f"/edgeapp/upload/{tokens[0]}", content=b"x").status_code == 200
        full = client.put(f"/edgeapp/upload/{tokens[1]}", content=b"x")
        assert (full.status_code, "this machine is busy" in full.text) == (503, True)


def test_exports(serve: Callable[..., Client]) -> None:
    client = serve()

    def ask(**message: Any) -> Any:
        return client.post("/edgeapp/export", headers=SAME_ORIGIN, content=json.dumps(message))

    cues = [{"start": 0, "end": 1.5, "text": " Hello."}]
    # A subtitle stays a little after its last word.
    assert ask(format="srt", cues=cues).text == "1\n00:00:00,000 --> 00:00:02,000\nHello.\n\n"
    assert ask(format="tsv", cues=cues).text == "start\tend\ttext\n0\t1500\tHello.\n"
    assert ask(format="exe", cues=cues).status_code == 400
    for cue in (
        {"text": "secret"}, {"start": "secret", "end": 1, "text": ""}, ["secret"],
        {**cues[0], "tokens": [1], "secret": 1},
    ):  # fmt: skip
        answer = ask(format="txt", cues=[cue])
        assert answer.status_code == 400
        assert "a segment of the transcript is invalid: " in answer.json()["error"]
        assert "secret" not in answer.text
    endless = ask(format="txt", cues=[{**cues[0], "start": 10**400}])
    assert endless.json() == {"error": "this is not a transcript: a number is too large"}
    assert ask(format="txt", cues=3).status_code == 400
    assert ask(cues=cues).status_code == 400


def test_models_cannot_be_changed_from_another_machine_without_a_login(
    serve: Callable[..., Client],
) -> None:
    client = serve(host="0.0.0.0", open_to_all=True)
    with client.websocket_connect(SOCKET, headers=SAME_ORIGIN) as socket:
        socket.receive_json()
        for message in ({"type": "plan", "name": "tiny"}, {"type": "remove", "name": "demo"}):
            socket.send_json({**message, "id": 1})
            assert "asks for a login" in socket.receive_json()["error"]
        socket.send_json({"type": "pull", "name": "tiny"})
        message = socket.receive_json()["message"]
        assert "asks for a login" in message
        assert "--" not in message, "a flag says nothing to a visitor of the page"


def test_reading_logins(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("anna:a:b\n\nben:c\n", "utf-8")
    assert read_logins(None) == ()
    assert read_logins("anna:pass word") == (("anna", "pass word"),)
    assert read_logins(str(users)) == (("anna", "a:b"), ("ben", "c"))
    for wrong in ("anna", ":x", "anna:", str(tmp_path / "absent.txt")):
        with pytest.raises(OptionError, match="--auth takes"):
            read_logins(wrong)


@pytest.mark.parametrize(
    "options",
    [{"port": 70_000}, {"sessions": 0}, {"upload_mb": 0}, {"minutes": 0},
     {"ssl_certfile": Path("x")}],
)  # fmt: skip
def test_impossible_options(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ServerOptions(**options)
