"""The check before every request: its path and method, its host and origin, its login.

Gradio declares about ninety routes (files of its cache, uploads, calls, a proxy, icons of any
size). The page uses four of them. `OPEN` lists these and our own; every other path answers 404
here, so a route that a new version of Gradio adds is closed until it is listed.

A path is judged as the router dispatches on it: scope["path"], which the server has decoded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse

from edgeapp.server.options import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CLOSE_FORBIDDEN", "OPEN", "Address", "SecurityMiddleware"]

CLOSE_FORBIDDEN = 4403  # close code: another site's page, or nobody who is logged in


@dataclass(frozen=True)
class Address:
    """A path that is served.

    Attributes:
        path: the whole path must match. Every part is bounded in length.
        methods: HTTP methods, or WEBSOCKET.
        public: served without a login.
        document: a browser may come here from another site, by a link.
        gradio: answered by Gradio, which gets no query string.
    """

    path: re.Pattern[str]
    methods: frozenset[str]
    public: bool = False
    document: bool = False
    gradio: bool = False


def _address(path: str, methods: str, **options: bool) -> Address:
    return Address(re.compile(path, re.ASCII), frozenset(methods.split()), **options)


OPEN = (
    _address(r"/login", "GET HEAD POST", public=True, document=True),
    _address(r"/logout", "POST", public=True),
    _address(r"/favicon\.ico", "GET HEAD", public=True),
    _address(r"/manifest\.json", "GET HEAD", public=True),
    _address(r"/edgeapp/static/[a-z0-9-]{1,40}\.(css|js|png|svg)", "GET HEAD", public=True),
    _address(r"/edgeapp/session", "WEBSOCKET"),
    _address(r"/edgeapp/person", "GET"),
    _address(r"/edgeapp/export", "POST"),
    _address(r"/edgeapp/upload/[\w-]{1,64}", "PUT"),
    _address(r"/", "GET HEAD", document=True, gradio=True),
    _address(r"/theme\.css", "GET", gradio=True),
    _address(r"/assets/[\w-]{1,80}\.(css|js)", "GET", gradio=True),
    _address(r"/static/js/iframeResizer\.contentWindow\.min\.js", "GET", gradio=True),
)

_POLICY = "; ".join(
    (
        "default-src 'self'",
        # Gradio's page has scripts in it, and makes some of text.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SecurityMiddleware:
    """ASGI middleware; it must be the outermost, so that errors have the headers too.

    Args:
        app: the application behind it.
        person: the user of a connection, None if a login is missing.
        loopback: the server listens on this machine only, and so answers to this machine's own
            names only.
    """

    def __init__(
        self, app: ASGIApp, *, person: Callable[[HTTPConnection], str | None], loopback: bool
    ) -> None:
        self.app, self._person, self._loopback = app, person, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/edgeapp/static/"):
                    headers["cache-control"] = "no-cache"  # asked again, seldom sent again
            await send(message)

        address = _find(scope)
        status, why = self._judge(HTTPConnection(scope), address)
        if not status:
            if address is not None and address.gradio:
                # None of the open routes needs a parameter, so none has one to be bounded.
                scope = {**scope, "query_string": b""}
            await self.app(scope, receive, sealed)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": CLOSE_FORBIDDEN, "reason": why})
        elif status == 401 and scope["path"] == "/":
            await RedirectResponse("/login", 303)(scope, receive, sealed)
        else:
            allowed = {"allow": ", ".join(sorted(address.methods))} if address else None
            headers = allowed if status == 405 else None
            await JSONResponse({"error": why}, status, headers)(scope, receive, sealed)

    def _judge(self, connection: HTTPConnection, address: Address | None) -> tuple[int, str]:
        """(0, "") for a request that is served, else a status and the reason."""
        host = connection.headers.get("host", "")
        if self._loopback and not is_loopback(_without_port(host)):
            # A website whose name was made to point to this machine (DNS rebinding).
            return 400, f"{host[:100]} is not this machine's own name"
        if address is None:
            return 404, "there is nothing here"
        # Browsers let any website send to any address; only our own page may.
        if _from_elsewhere(connection, host, address):
            return 403, "this is for EdgeApp's own page"
        method = _method(connection.scope)
        if method not in address.methods:
            return 405, f"{method[:20]} is not possible here"
        if not address.public and self._person(connection) is None:
            return 401, "log in first"
        return 0, ""


def _find(scope: Scope) -> Address | None:
    # The router takes a root_path off the path before it dispatches. We serve at the root only.
    if scope.get("root_path"):
        return None
    path = scope["path"]
    return next((address for address in OPEN if address.path.fullmatch(path)), None)


def _method(scope: Scope) -> str:
    return "WEBSOCKET" if scope["type"] == "websocket" else str(scope["method"])


def _from_elsewhere(connection: HTTPConnection, host: str, address: Address) -> bool:
    """Whether a page of another site sends this, or shows it as its own picture or script."""
    headers = connection.headers
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc != host
    if connection.scope["type"] == "websocket":
        return True  # browsers always say where a WebSocket is from
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    link = headers.get("sec-fetch-mode") == "navigate"
    return not (address.document and link and headers.get("sec-fetch-dest") == "document")


def _without_port(host: str) -> str:
    """An IPv6 address loses its brackets, too."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name
