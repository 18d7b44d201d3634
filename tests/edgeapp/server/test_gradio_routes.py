"""The allowed routes, checked against every route of the installed Gradio."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Mount

from edgeapp.model_pool import ModelPool
from edgeapp.server.access.security import ALLOWED_ROUTES
from edgeapp.server.options import ServerOptions
from edgeapp.server.request_log import RequestLog
from edgeapp.settings import Settings

pytestmark = pytest.mark.slow

# Gradio's routes that the page needs, each with an example path: the requests of headless Chromium
# that opens the page and goes through its tabs.
NEEDED = {
    ("GET", "/"): "/",
    ("HEAD", "/"): "/",
    ("GET", "/theme.css"): "/theme.css",
    ("GET", "/assets/{path:path}"): "/assets/index-Akn07EZk2.js",
    ("GET", "/static/{path:path}"): "/static/js/iframeResizer.contentWindow.min.js",
}
# Gradio's routes that its named endpoints need beside them.
CALLED = {
    ("GET", "/config"): "/config",
    ("GET", "/gradio_api/info"): "/gradio_api/info",
}
# Those that reach Gradio only with a checked body, or for a call that exists.
CHECKED = {
    ("POST", "/gradio_api/queue/join"): 411,
    ("GET", "/gradio_api/queue/data"): 400,
    ("POST", "/gradio_api/cancel"): 411,
    ("POST", "/gradio_api/call/translate"): 411,
    ("POST", "/gradio_api/call/v2/translate"): 411,
    ("GET", "/gradio_api/call/translate/" + "0a" * 16): 404,
}
# EdgeApp's own paths that Gradio declares too. They must not reach Gradio.
OURS = {"/login", "/logout", "/favicon.ico", "/manifest.json", "/gradio_api/upload"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "get", "WEBSOCKET")
VALUES = ("1", "a", "99999999", "-1", "9" * 5_000, "a" * 70_000, "a/b", "..", "%2e%2e%2fx",
          "..%5c..%5cx", "%00", "a%0A", "a.js%3Fx", "a;b", "%C3%A9.js", "//", "")  # fmt: skip
QUERIES = ("size=99999999", "v=" + "9" * 10_000, "deep_link=x&page=%00")


@dataclass
class Served:
    """The application. reached: the requests that passed the middleware to Gradio's mount."""

    app: RequestLog
    gradio: Any
    loop: asyncio.AbstractEventLoop
    reached: list[tuple[str, str, bytes]] = field(default_factory=list)

    def ask(self, method: str, target: str, **scope: Any) -> int:
        """The status of a response. target: as in a request line, decoded as uvicorn does."""
        raw, _, query = target.partition("?")
        asked: dict[str, Any] = {
            "type": "http", "method": method, "path": unquote(raw), "raw_path": raw.encode(),
            "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1")],
            "http_version": "1.1", "scheme": "http", "root_path": "", "state": {},
            "asgi": {"version": "3.0", "spec_version": "2.4"}, "extensions": {},
            "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 9),
        }  # fmt: skip
        if method == "WEBSOCKET":
            asked |= {"type": "websocket", "scheme": "ws", "subprotocols": []}
            asked["headers"].append((b"origin", b"http://127.0.0.1"))
        sent: list[dict[str, Any]] = []
        first = "websocket.connect" if method == "WEBSOCKET" else "http.request"
        waiting = [{"type": first, "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            return waiting.pop() if waiting else {"type": f"{asked['type']}.disconnect"}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        self.loop.run_until_complete(self.app(asked | scope, receive, send))
        if sent[0]["type"] == "websocket.close":
            return 404
        return int(sent[0]["status"])


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """The real application, with a recorder in place of the mounted Gradio app."""
    loop = asyncio.new_event_loop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gradio's own
        from gradio.routes import App

        from edgeapp.server.app import make_app

        async def make() -> Any:  # outside a loop, Gradio makes loops, and does not close them
            return make_app(ModelPool(Settings(), listed_only=True), ServerOptions(), None)

        app, own = loop.run_until_complete(make())
    inner: Any = app
    while not hasattr(inner, "routes"):  # behind the middleware
        inner = inner.app
    mounts = [route for route in inner.routes if isinstance(route, Mount)]
    (mount,) = [mount for mount in mounts if isinstance(mount.app, App)]
    page = Served(app, mount.app, loop)

    async def record(scope: Any, receive: Any, send: Any) -> None:
        page.reached.append(
            (scope.get("method", "WEBSOCKET"), scope["path"], scope["query_string"])
        )
        await PlainTextResponse("reached")(scope, receive, send)

    mount.app = record
    yield page
    own.close()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def declared(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[str]:
    """The path of every route, through included routers and mounts."""
    from fastapi.routing import iter_route_contexts

    for context in iter_route_contexts(list(routes)):
        route = context.original_route
        if isinstance(route, Mount | Host):
            inside = prefix + getattr(route, "path", "")
            yield inside + "/{path:path}"
            yield from declared(route.routes or [], inside)
        else:
            assert context.path is not None, f"a kind of route that this test cannot read: {route}"
            yield prefix + context.path


def in_the_source() -> set[str]:
    """Paths that Gradio's source declares under conditions (a login, a monitor, MCP)."""
    import gradio.routes

    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(gradio.routes))):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or not node.args
        ):
            continue
        of, path = node.func.value, node.args[0]
        if isinstance(of, ast.Name) and of.id in ("app", "router"):
            if isinstance(path, ast.Constant) and str(path.value).startswith("/"):
                found.add(str(path.value))
            elif isinstance(path, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{x}" for p in path.values]
                found.add("".join(map(str, parts)))
    return found | {f"/gradio_api{path}" for path in found}


def requests_for(path: str) -> Iterator[tuple[str, str, str]]:
    """(method, target, query): plain and extreme requests for a route."""
    values = VALUES if "{" in path else VALUES[:1]
    targets = [value.join(re.split(r"{[^}]*}", path)) for value in values]
    for target in [*targets, f"{targets[0]}/", f"/{targets[0]}", path.upper()]:
        yield from ((method, target, "") for method in METHODS)
        yield from (("GET", target, query) for query in QUERIES)


def leaks(served: Served, paths: Iterable[str]) -> list[tuple[str, str]]:
    """(method, target) of the requests for these paths that wrongly pass the middleware."""
    needed = {(method, target) for (method, _), target in (NEEDED | CALLED).items()}
    found = []
    for path in paths:
        for method, target, query in requests_for(path):
            served.reached.clear()
            status = served.ask(method, f"{target}?{query}")
            if (method, target) in needed:
                assert served.reached == [(method, target, b"")], "the query string is removed"
            elif (method, target) in CHECKED:
                assert not served.reached
                assert status == CHECKED[method, target]
            elif served.reached or (status not in (404, 405) and target not in OURS):
                found.append((method, target[:80]))
    return found


def test_only_the_needed_routes_of_gradio_are_allowed(served: Served) -> None:
    routes = set(declared(served.gradio.routes))
    assert len(routes) > 50, "Gradio's routes were not found"
    assert {"/pwa_icon/{size}", "/gradio_api/heartbeat/{session_hash}"} <= routes
    assert {path for _, path in NEEDED} <= routes
    every = routes | in_the_source()
    assert {"/monitoring/{key}", "/gradio_api/profiling/traces"} <= every
    assert leaks(served, sorted(every)) == []


def test_the_needed_routes_are_allowed(served: Served) -> None:
    for (method, _), target in (NEEDED | CALLED).items():
        served.reached.clear()
        assert served.ask(method, f"{target}?v=1") == 200
        assert served.reached == [(method, target, b"")]
    every = [(m, target) for (m, _), target in (NEEDED | CALLED).items()] + list(CHECKED)
    listed = [address for address in ALLOWED_ROUTES if address.gradio]
    for address in listed:
        open_methods = {method for method, target in every if address.path.fullmatch(target)}
        assert address.methods == open_methods


def test_a_route_that_a_new_gradio_adds_is_not_allowed(served: Served) -> None:
    added = ["/picture/{size}", "/pwa_icon/{size}/{format}", "/gradio_api/new", "/assets-of/{x}"]
    before = len(served.gradio.router.routes)
    for path in added:
        served.gradio.add_api_route(path, lambda: None, methods=["GET", "POST"])
    served.gradio.mount("/beneath", PlainTextResponse("a mount"))
    try:
        new = set(declared(served.gradio.routes[before:]))
        assert new == {*added, "/beneath/{path:path}"}
        assert leaks(served, new) == []
    finally:
        del served.gradio.router.routes[before:]


@pytest.mark.parametrize(
    ("method", "target", "status", "reaches"),
    [
        ("GET", "/theme.css", 200, True),
        ("GET", "/%74heme%2ecss", 200, True),  # decoded once, here as there
        ("GET", "/%2574heme.css", 404, False),
        ("GET", "/theme.css%0A", 404, False),
        ("GET", "/theme.css%00", 404, False),
        ("GET", "/theme.css;a=b", 404, False),
        ("GET", "/theme.css%3Fv=1", 404, False),
        ("GET", "/theme.css%23/../x", 404, False),
        ("GET", "/theme.css/", 404, False),
        ("GET", "//theme.css", 404, False),
        ("GET", "/./theme.css", 404, False),
        ("GET", "/x/../theme.css", 404, False),
        ("GET", "\\theme.css", 404, False),
        ("GET", "/theme.css\\", 404, False),
        ("GET", "http://127.0.0.1/theme.css", 404, False),
        ("GET", "*", 404, False),
        ("GET", "", 404, False),
        ("HEAD", "/theme.css", 405, False),
        ("OPTIONS", "/theme.css", 405, False),
        ("POST", "/theme.css", 405, False),
        ("POST", "/", 405, False),
        ("HEAD", "/", 200, True),
        ("OPTIONS", "*", 404, False),
        ("GET", "/assets/a.js", 200, True),
        ("GET", "/assets/" + "a" * 80 + ".js", 200, True),
        ("GET", "/assets/" + "a" * 81 + ".js", 404, False),
        ("GET", "/assets/%D9%A1.js", 404, False),  # a digit, but not an ASCII one
        ("GET", "/assets/a/b.js", 404, False),
        ("GET", "/assets/..%2Froutes.py", 404, False),
        ("GET", "/assets/a.js%0a", 404, False),
        ("GET", "/static/js/../js/iframeResizer.contentWindow.min.js", 404, False),
        ("GET", "/edgeapp/static/frame.js", 200, False),
        ("HEAD", "/edgeapp/static/frame.js", 200, False),
        ("GET", "/edgeapp/static/live.html", 404, False),
        ("GET", "/edgeapp/static/..", 404, False),
        ("GET", "/edgeapp/static/%2e%2e%2fapp.py", 404, False),
        ("GET", "/edgeapp/static/a%5c..%5capp.py", 404, False),
        ("POST", "/edgeapp/static/frame.js", 405, False),
        ("GET", "/edgeapp/session", 405, False),
        ("WEBSOCKET", "/", 404, False),
        ("WEBSOCKET", "/edgeapp/session/", 404, False),
        ("GET", "/edgeapp/export", 405, False),
        ("PUT", "/edgeapp/upload/" + "a" * 65, 404, False),
        ("GET", "/favicon.ico", 200, False),
        ("GET", "/manifest.json", 200, False),
        ("GET", "/pwa_icon", 404, False),
        ("GET", "/pwa_icon?size=99999999", 404, False),
        ("GET", "/pwa_icon/99999999", 404, False),
        ("GET", "/logout", 405, False),  # Gradio declares a GET of it
        ("GET", "/config", 200, True),
        ("GET", "/config/", 404, False),
        ("POST", "/gradio_api/call/predict", 404, False),
        ("POST", "/gradio_api/call/v2/predict", 404, False),
        ("GET", "/gradio_api/call/v2/translate", 405, False),
        ("GET", "/gradio_api/queue/data?session_hash=abcdefgh&x=1", 400, False),
        ("GET", "/gradio_api/queue/data?session_hash=abcdefgh", 404, False),
        ("POST", "/gradio_api/stream/" + "0a" * 16, 404, False),
        ("GET", "/gradio_api/file=/etc/passwd", 404, False),
        ("POST", "/gradio_api/run/translate", 404, False),
        ("GET", "/gradio_api/upload_progress", 404, False),
        ("GET", "/gradio_api/heartbeat/a", 404, False),
        ("GET", "/openapi.json", 404, False),
    ],
)  # fmt: skip
def test_middleware_and_router_match_the_same_path(
    served: Served, method: str, target: str, status: int, reaches: bool
) -> None:
    served.reached.clear()
    assert served.ask(method, target) == status
    assert bool(served.reached) == reaches


def test_a_root_path_is_rejected(served: Served) -> None:
    """The router would strip it: /theme.css/monitoring would be Gradio's /monitoring."""
    served.reached.clear()
    assert served.ask("GET", "/theme.css", root_path="/theme.css") == 404
    assert served.ask("GET", "/assets/a.js", root_path="/assets") == 404
    assert not served.reached
