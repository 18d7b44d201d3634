"""Requests of other sites' pages: who is answered, with which token, and what browsers are told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from edgeapp.cli import main
from edgeapp.server.access.origins import parse_origins
from edgeapp.server.access.tokens import TokenFile
from pipelines.errors import OptionError
from tests.edgeapp.server.conftest import serving_routes

SITE = "http://localhost:3000"
APPS = (
    "chrome-extension://abcdefghijklmnop", "moz-extension://0c9f-4e2a", "app://obsidian.md",
    "tauri://localhost", "capacitor://localhost", "file://",
)  # fmt: skip
# A website has the origin "null" in an <iframe sandbox>.
WEBSITES = ("http://evil.example", "https://evil.example", SITE, "http://127.0.0.1:1", "null")
# Requests whose browser does not name the page, as for an <img>.
UNNAMED = ("cross-site", "same-site")
FORM: dict[str, Any] = {"data": {"q": "Good morning.", "source": "de", "target": "de"}}
FILE: dict[str, Any] = {"files": {"file": ("a.exe", b"x")}, "data": {"source": "en"}}
Asked = tuple[str, str, dict[str, Any], int]
# Method, path, further arguments, and the status of an admitted request.
V1: tuple[Asked, ...] = (
    ("GET", "v1/models", {}, 200), ("GET", "v1/models/none", {}, 404),
    ("GET", "v1/openapi.json", {}, 200), ("GET", "v1/docs", {}, 200),
    ("POST", "v1/chat/completions", {}, 404),
    ("POST", "v1/audio/transcriptions", {}, 400), ("POST", "v1/audio/translations", {}, 400),
)  # fmt: skip
LIBRETRANSLATE: tuple[Asked, ...] = (
    ("POST", "translate", FORM, 200), ("POST", "detect", FORM, 200),
    ("POST", "translate_file", FILE, 400), ("GET", "download_file/none/a.txt", {}, 404),
)  # fmt: skip
KEYLESS: tuple[Asked, ...] = (
    ("GET", "languages", {}, 200), ("GET", "frontend/settings", {}, 200),
    ("GET", "health", {}, 200),
)  # fmt: skip
PAGE: tuple[Asked, ...] = (
    ("GET", "metrics", {}, 200), ("GET", "edgeapp/user", {}, 200),
    ("GET", "edgeapp/sample", {}, 200), ("GET", "edgeapp/static/none.js", {}, 404),
    ("GET", "login", {}, 303),
    ("POST", "edgeapp/export", {}, 400), ("PUT", "edgeapp/upload/none", {}, 404),
    ("POST", "gradio_api/queue/join", {}, 404), ("POST", "gradio_api/call/translate", {}, 404),
    ("POST", "gradio_api/upload", {}, 404), ("GET", "config", {}, 404),
)  # fmt: skip


class Server:
    """A server, a valid token, and a connection to it."""

    def __init__(self, url: str, secret: str, client: httpx.Client) -> None:
        self.url, self.secret, self._client = url, secret, client

    def ask(self, asked: Asked, headers: dict[str, str], **changes: Any) -> httpx.Response:
        method, path, arguments, _ = asked
        answer = self._client.request(
            method, self.url + path, headers=headers, **(arguments | changes)
        )
        assert "access-control-allow-credentials" not in answer.headers
        return answer

    def preflight(self, path: str, origin: str, **headers: str) -> httpx.Response:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.options(
            self.url + path,
            headers={"origin": origin, "access-control-request-method": "POST", **headers},
        )

    def socket(self, path: str, **options: Any) -> ClientConnection:
        return connect(self.url.replace("http", "ws") + path, open_timeout=60, **options)


Serve = Callable[..., Server]


@pytest.fixture
def serve(thread_server: Callable[..., str], tmp_path: Path) -> Iterator[Serve]:
    """Starts servers; token: whether there is one."""
    with httpx.Client(timeout=60) as client:

        def start(*, token: bool = True, allowed: tuple[str, ...] = (), **options: Any) -> Server:
            tokens = TokenFile(tmp_path / "tokens.json")
            secret = tokens.add("laptop") if token else ""
            url = thread_server(tokens=tokens, allow_origins=parse_origins(allowed), **options)
            return Server(url.replace("0.0.0.0", "127.0.0.1"), secret, client)

        yield start


def from_page(origin: str) -> dict[str, str]:
    return {"sec-fetch-site": origin} if origin in UNNAMED else {"origin": origin}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for this machine with a token."""
    folder = tmp_path_factory.mktemp("here")
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("laptop")
    with serving_routes(folder, tokens=tokens) as url, httpx.Client(timeout=60) as client:
        yield Server(url, secret, client)


def test_on_this_machine_a_program_needs_no_token_and_a_wrong_one_does_no_harm(
    here: Server,
) -> None:
    for asked in (*V1, *LIBRETRANSLATE, *KEYLESS, *PAGE):
        for token in ({}, bearer("wrong"), bearer(here.secret)):
            answer = here.ask(asked, token)
            assert answer.status_code == asked[3], asked
            assert "access-control-allow-origin" not in answer.headers


# The status of requests without a token, with a wrong one, with a right one. None: admitted.
@pytest.mark.parametrize(
    ("routes", "origins", "statuses"),
    [
        (V1, (*APPS, *WEBSITES, *UNNAMED), (403, 403, None)),
        (LIBRETRANSLATE, (*APPS, *WEBSITES, *UNNAMED), (403, 403, None)),
        (KEYLESS, APPS, (None, None, None)),
        (KEYLESS, (*WEBSITES, *UNNAMED), (403, 403, None)),
        (PAGE, (*APPS, *WEBSITES, *UNNAMED), (403, 403, 403)),
    ],
    ids=["v1", "libretranslate", "keyless, apps", "keyless, websites", "page"],
)
def test_a_page_of_another_site_needs_a_valid_token(
    here: Server, routes: tuple[Asked, ...], origins: tuple[str, ...], statuses: tuple[Any, ...]
) -> None:
    tokens = ({}, bearer("wrong"), bearer(here.secret))
    for origin in origins:
        page = from_page(origin)
        readable = origin if "origin" in page and routes is not PAGE else None
        for asked in routes:
            for token, status in zip(tokens, statuses, strict=True):
                answer = here.ask(asked, page | token)
                assert answer.status_code == (status or asked[3]), (origin, asked, token)
                headers = answer.headers
                assert headers.get("access-control-allow-origin") == readable, (origin, asked)
                assert ("Origin" in headers.get("vary", "")) == (routes is not PAGE), asked


def test_without_tokens_all_other_sites_are_refused_and_read_nothing(serve: Serve) -> None:
    server = serve(token=False)
    for origin in (*APPS[:1], *WEBSITES, *UNNAMED):
        for asked in (*V1, *LIBRETRANSLATE, *KEYLESS, *PAGE):
            answer = server.ask(asked, from_page(origin) | bearer("any"))
            assert answer.status_code == 403, asked
            assert "access-control-allow-origin" not in answer.headers
        assert server.preflight("translate", origin).status_code == 403


def test_the_pages_of_an_allowed_origin_use_the_routes_of_programs(serve: Serve) -> None:
    server = serve(token=False, allowed=(SITE, "app://obsidian.md"))
    for origin in (SITE, "app://obsidian.md"):
        for asked in (*V1, *LIBRETRANSLATE, *KEYLESS):
            answer = server.ask(asked, {"origin": origin})
            assert answer.status_code == asked[3], asked
            assert answer.headers["access-control-allow-origin"] == origin
        for asked in PAGE:
            assert server.ask(asked, {"origin": origin}).status_code == 403, asked
        assert server.preflight("translate", origin).status_code == 204
    for other in ("https://localhost:3000", "http://localhost:3001", "http://localhost", "null"):
        assert server.ask(KEYLESS[0], {"origin": other}).status_code == 403, other
    with server.socket("v1/live?rate=1", origin=SITE) as socket:  # type: ignore[arg-type]
        assert "cannot be used" in str(socket.recv(60))


def test_an_allowed_origin_is_no_login_and_a_cookie_is_no_token(serve: Serve) -> None:
    server = serve(host="0.0.0.0", allowed=(SITE,))
    login = httpx.post(f"{server.url}login", data={"user": "laptop", "password": server.secret})
    cookie = {"cookie": login.headers["set-cookie"].partition(";")[0]}
    assert server.ask(V1[0], cookie).status_code == 200
    for sent in ({}, cookie):
        assert server.ask(V1[0], {"origin": SITE} | sent).status_code == 401
        assert server.ask(LIBRETRANSLATE[0], {"origin": SITE} | sent).status_code == 403
        assert server.ask(KEYLESS[0], {"origin": SITE} | sent).status_code == 200
        for asked in (*V1, *LIBRETRANSLATE, *KEYLESS):
            answer = server.ask(asked, {"origin": "http://127.0.0.1:1"} | sent)
            assert answer.status_code == 403, (asked, sent)
    refused = server.ask(V1[0], {"origin": SITE}).headers
    assert refused["access-control-allow-origin"] == SITE, "the page can read why"
    both = {"origin": SITE} | bearer(server.secret)
    assert server.ask(V1[0], both).status_code == 200
    with pytest.raises(InvalidStatus):
        server.socket("v1/live", origin=SITE, additional_headers=cookie)


@pytest.mark.parametrize("asked", LIBRETRANSLATE[:3])
def test_an_api_key_in_the_body_or_the_query_is_a_token(serve: Serve, asked: Asked) -> None:
    server, page = serve(), {"origin": "http://evil.example"}
    for key, status in (("", 403), ("wrong", 403), (server.secret, asked[3])):
        in_body = asked[2] | {"data": asked[2]["data"] | {"api_key": key}}
        assert server.ask(asked, page, **in_body).status_code == status
        answer = server.ask(asked, page, params={"api_key": key})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == page["origin"]
    if asked[1] != "translate_file":
        content = {**FORM["data"], "api_key": server.secret}
        sent: Asked = ("POST", asked[1], {"json": content}, 200)
        assert server.ask(sent, page).status_code == 200
        sent = ("POST", asked[1], {"json": {**content, "api_key": ["x"]}}, 403)
        assert server.ask(sent, page).status_code == 403
        # It is looked for in so many bytes only.
        sent = ("POST", asked[1], {"json": {**content, "x": "x" * (2 << 20)}}, 413)
        assert server.ask(sent, page).status_code == 413


def test_an_api_key_in_the_query_is_for_libretranslate_only(serve: Serve) -> None:
    server, page = serve(), {"origin": "app://obsidian.md"}
    key = {"params": {"api_key": server.secret}}
    for asked in V1:
        assert server.ask(asked, page, **key).status_code == 403, asked
    assert server.ask(LIBRETRANSLATE[3], page, **key).status_code == 404
    assert server.ask(KEYLESS[0], {"origin": SITE}, **key).status_code == 200


def test_a_page_elsewhere_is_told_that_it_needs_a_key(serve: Serve) -> None:
    server = serve()
    settings = server.ask(KEYLESS[1], {"origin": APPS[0]}).json()
    assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)
    assert server.ask(KEYLESS[1], {}).json()["keyRequired"] is False
    message = server.ask(V1[0], {"origin": SITE}).json()["error"]["message"]
    assert "token" in message
    assert f"--allow-origin {SITE}" in message
    message = server.ask(V1[0], {"origin": "null"}).json()["error"]["message"]
    assert "--allow-origin" not in message, "null cannot be allowed"


def test_preflights(serve: Serve) -> None:
    server = serve()
    asked = "authorization, content-type, x-stainless-os"
    for origin in (*APPS, *WEBSITES):
        for _, path, _, _ in (*V1, *LIBRETRANSLATE, *KEYLESS):
            answer = server.preflight(path, origin, access_control_request_headers=asked)
            assert answer.status_code == 204, (origin, path)
            headers = answer.headers
            assert headers["access-control-allow-origin"] == origin
            assert headers["access-control-allow-headers"] == asked
            assert "access-control-allow-private-network" not in headers
            assert "access-control-allow-credentials" not in headers
            assert "Origin" in headers["vary"].split(", ")
        for _, path, _, _ in PAGE:
            answer = server.preflight(path, origin)
            assert answer.status_code == 403, (origin, path)
            assert "access-control-allow-origin" not in answer.headers
    private = {"access_control_request_private_network": "true"}
    headers = server.preflight("translate", SITE, **private).headers
    assert headers["access-control-allow-private-network"] == "true"
    assert headers["access-control-allow-methods"] == "POST"
    assert (
        server.preflight("v1/models", SITE).headers["access-control-allow-methods"] == "GET, HEAD"
    )
    for much in ("a" * 1001, "a\x7f"):
        many = server.preflight("translate", SITE, access_control_request_headers=much)
        assert "access-control-allow-headers" not in many.headers
    assert server.ask(("OPTIONS", "translate", {}, 0), {"origin": SITE}).status_code == 403
    assert server.ask(("OPTIONS", "translate", {}, 0), {}).status_code == 405


@pytest.mark.parametrize("path", ["v1/live?rate=1", "v1/realtime"])
def test_websockets_of_pages_send_their_token_as_a_subprotocol(serve: Serve, path: str) -> None:
    server = serve()
    right, wrong = (f"openai-insecure-api-key.{key}" for key in (server.secret, "wrong"))

    def answered(offered: list[str], **options: Any) -> str | None:
        with server.socket(path, subprotocols=offered or None, **options) as socket:
            assert "error" in str(socket.recv(60)), "it is refused for its options, not before"
            return socket.subprotocol

    for origin in (*APPS, *WEBSITES):
        assert answered(["realtime", right], origin=origin) == "realtime"
        for offered in ([], ["realtime"], ["realtime", wrong]):
            with pytest.raises(InvalidStatus) as refused:
                server.socket(path, subprotocols=offered or None, origin=origin)
            assert refused.value.response.status_code == 403
    assert answered([right, "openai-beta.realtime-v1"], origin=SITE) == "openai-beta.realtime-v1"
    assert answered(["other", "realtime"]) == "realtime"
    assert answered([right]) is None, "a token is never sent back"
    assert answered([right.replace("openai", "OpenAI")]) is None
    assert answered([], origin=SITE, additional_headers=bearer(server.secret)) is None
    for page_socket in ("edgeapp/session", "edgeapp/view/none"):
        with pytest.raises(InvalidStatus):
            server.socket(page_socket, subprotocols=["realtime", right], origin=SITE)


def test_a_page_whose_token_is_revoked_is_cut_off(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine, too, where others need no token."""
    monkeypatch.setattr("edgeapp.server.api.live_socket._LOGIN_CHECKED_S", 0.05)
    server = serve()
    key = bearer(server.secret)
    with server.socket("v1/live", origin=SITE, additional_headers=key) as socket:
        assert json.loads(socket.recv(60))["type"] == "started"
        TokenFile(tmp_path / "tokens.json").revoke("laptop")
        with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            while True:
                socket.recv(60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403
    assert server.ask(V1[0], {"origin": SITE} | key).status_code == 403


def test_many_wrong_tokens_are_refused_like_one(serve: Serve) -> None:
    """A page that tries cannot lock out other programs of its visitor's machine."""
    server = serve()
    for _ in range(15):
        answer = server.ask(V1[0], {"origin": SITE} | bearer("wrong"))
        assert answer.status_code == 403
    assert server.ask(V1[0], bearer("any")).status_code == 200
    away = serve(token=False, host="0.0.0.0")
    codes = [away.ask(V1[0], {"origin": SITE} | bearer("wrong")).status_code for _ in range(12)]
    assert codes == [403] * 10 + [429] * 2


def test_query_strings_are_in_no_log(
    thread_server: Callable[..., str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("laptop")
    url = thread_server(tokens=tokens, log=lines.append)
    query = {"api_key": secret, "q": "Confidential", "source": "de", "target": "de"}
    for path in ("translate", "detect", "translate_file", "none", "v1/none"):
        for key in (secret, "wrong-key"):
            httpx.post(url + path, params=query | {"api_key": key})
    with (
        pytest.raises(InvalidStatus),
        connect(f"{url.replace('http', 'ws')}v1/none?key={secret}", open_timeout=60),
    ):
        pass
    with connect(f"{url.replace('http', 'ws')}v1/live?key={secret}", open_timeout=60) as socket:
        socket.recv(60)
    deadline = time.monotonic() + 60
    while len(lines) < 10:  # they are written after the replies
        assert time.monotonic() < deadline, lines
        time.sleep(0.01)
    assert len(lines) == 10
    captured = capfd.readouterr()
    for written in (*lines, captured.out, captured.err):
        for word in (secret, "wrong-key", "Confidential", "api_key"):
            assert word not in written


@pytest.mark.parametrize(
    "text",
    ["*", "null", "", "localhost:3000", "http://", "http://*.example", "http://a/", "http://a/b",
     "http://u@a", "http://a:b", "http://a b", "file://"],
)  # fmt: skip
def test_what_is_no_origin_is_not_allowed(text: str) -> None:
    with pytest.raises(OptionError, match="--allow-origin takes a scheme, a name and a port"):
        parse_origins([text])


def test_origins_are_those_that_browsers_send() -> None:
    given = ["HTTP://LocalHost:3000", "https://a.example:443", "http://b:80", "http://b:8080"]
    sent = {"http://localhost:3000", "https://a.example", "http://b", "http://b:8080"}
    assert parse_origins(given) == sent


@pytest.mark.parametrize("command", ["ui", "serve"])
def test_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    calls: list[Any] = []
    monkeypatch.setattr("edgeapp.server.serve.serve", lambda *given: calls.append(given))
    flags = ("--allow-origin", SITE, "--allow-origin", "app://obsidian.md", "--allow-host", "A.B")
    with pytest.raises(SystemExit) as ended:
        main([command, *flags])
    assert ended.value.code in (None, 0)
    options = calls.pop()[1]
    assert options.allow_origins == {SITE, "app://obsidian.md"}
    assert options.allow_hosts == {"a.b"}
