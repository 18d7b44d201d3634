"""What stands before every request: who may come in, to which addresses, from which pages.

Gradio serves far more addresses than this page uses (files of its cache, uploads, calls, a proxy).
Only those that the page uses are open here; all others do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["NOT_YOURS", "Guard"]

_HERE = ("127.0.0.1", "localhost", "[::1]")
NOT_YOURS = 4403  # close code: another site's page, or nobody who is logged in

# The door and what it looks like: for everybody.
_PUBLIC = re.compile(
    r"/login|/logout|/favicon\.ico|/manifest\.json|/robots\.txt|/pwa_icon(/\d+)?"
    r"|/edgeapp/static/[\w.-]+"
)
# The page and what people do on it: for those who are logged in, where anybody has to be.
_INSIDE = re.compile(
    r"/|/config/?|/theme\.css|/assets/[\w.-]+|/static/[\w./-]+"
    r"|/gradio_api/(startup-events|theme\.css|info|app_id|login_check)/?"
    r"|/gradio_api/heartbeat/[\w-]+"
    r"|/edgeapp/(session|export|upload/[\w-]+)"
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
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """person: who a connection is from, None for a stranger. loopback: only this machine is
    served, and so only under its own names."""

    def __init__(
        self, app: ASGIApp, *, person: Callable[[HTTPConnection], str | None], loopback: bool
    ) -> None:
        self._app, self._person, self._loopback = app, person, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        status, why = self._judge(HTTPConnection(scope))
        if status and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": NOT_YOURS, "reason": why})
            return
        if status == 401 and scope["path"] == "/":
            await RedirectResponse("/login", 303)(scope, receive, send)
            return
        if status:
            await JSONResponse({"error": why}, status)(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/edgeapp/static/"):
                    headers["cache-control"] = "no-cache"  # asked again, seldom sent again
            await send(message)

        await self._app(scope, receive, sealed)

    def _judge(self, connection: HTTPConnection) -> tuple[int, str]:
        """(0, "") for whoever may come in, else a status and the reason."""
        path, host = connection.url.path, connection.headers.get("host", "")
        if self._loopback and _without_port(host) not in _HERE:
            # A website whose name was made to point here is not us.
            return 400, f"{host} is not this machine's own name"
        public = _PUBLIC.fullmatch(path) is not None
        if not public and (not _INSIDE.fullmatch(path) or ".." in path):
            return 404, "there is nothing here"
        # Browsers let any website send to any address; only our own page may.
        origin = connection.headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != host
        if foreign or (origin is None and path == "/edgeapp/session"):
            return 403, "this is for EdgeApp's own page"
        if not public and self._person(connection) is None:
            return 401, "log in first"
        return 0, ""


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host
