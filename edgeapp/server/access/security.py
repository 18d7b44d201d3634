"""Security middleware: checks host, path, origin, method and login of every request.

Gradio declares about ninety routes (files of its cache, uploads, calls, a proxy, icons of any
size). The page uses four of them, its named endpoints seven. `ALLOWED_ROUTES` lists these and
EdgeApp's own; every other path gets a 404, so a route that a new version of Gradio adds is closed
until it is listed.

The path that is checked is the one that the router dispatches on: scope["path"], which the server
has percent-decoded once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response

from edgeapp.server.access.addresses import TrustedProxies
from edgeapp.server.access.auth import Logins, TooManyAttempts
from edgeapp.server.access.hosts import HostNames
from edgeapp.server.access.origins import (
    CrossOrigin,
    Origins,
    foreign_origin,
    is_preflight,
    preflight_headers,
)
from edgeapp.server.replies import error_reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "ALLOWED_ROUTES",
    "CLOSE_FORBIDDEN",
    "SECURITY_HEADERS",
    "AllowedRoute",
    "SecurityMiddleware",
    "program_route",
]

CLOSE_FORBIDDEN = 4403  # WebSocket close code: a page of another site, or a missing login

_PREFLIGHT = 204  # the status of the reply to a preflight that is permitted
_DENIAL = "websocket.http.response"  # the extension with which a handshake is refused


@dataclass(frozen=True)
class AllowedRoute:
    """A route that is served.

    Attributes:
        path: The pattern of the whole path. Every part is bounded in length.
        methods: HTTP methods, or WEBSOCKET.
        public: Served without a login.
        document: A link on another site may lead here.
        program: The name of a route for programs, which is in logs and metrics. A WebSocket of
            programs may have no Origin.
        cross_origin: Where pages of other sites that use the route send their token. None: they
            cannot use it.
        gradio: Served by Gradio; the query string is removed, unless `query` matches all of it.
        query: The query string that may reach Gradio.
    """

    path: re.Pattern[str]
    methods: frozenset[str]
    public: bool = False
    document: bool = False
    program: str | None = None
    cross_origin: CrossOrigin | None = None
    gradio: bool = False
    query: re.Pattern[bytes] | None = None


def _route(path: str, methods: str, **options: Any) -> AllowedRoute:
    return AllowedRoute(re.compile(path, re.ASCII), frozenset(methods.split()), **options)


def _program(path: str, methods: str, name: str, **options: Any) -> AllowedRoute:
    return _route(path, methods, program=name, **options)


def _v1(path: str, methods: str, name: str, **options: Any) -> AllowedRoute:
    return _program(path, methods, name, cross_origin=CrossOrigin.HEADER, **options)


def _libretranslate(
    path: str,
    methods: str,
    name: str,
    *,
    cross_origin: CrossOrigin = CrossOrigin.ANYWHERE,
    document: bool = False,
) -> AllowedRoute:
    return _program(path, methods, name, public=True, cross_origin=cross_origin, document=document)


_ENDPOINTS = "(transcribe|translate|live|models)"
ALLOWED_ROUTES = (
    _route(r"/login", "GET HEAD POST", public=True, document=True),
    _route(r"/logout", "POST", public=True),
    _route(r"/favicon\.ico", "GET HEAD", public=True),
    _route(r"/manifest\.json", "GET HEAD", public=True),
    _route(
        r"/edgeapp/static/([a-z]{1,20}/)?[a-z0-9-]{1,40}\.(css|js|json|png|svg|woff2)",
        "GET HEAD",
        public=True,
    ),
    # The secret in the address is the permission.
    _route(r"/(view|overlay)/[\w-]{1,64}", "GET HEAD", public=True, document=True),
    _route(r"/edgeapp/view/[\w-]{1,64}", "WEBSOCKET", public=True),
    _route(r"/enter/[\w-]{1,64}", "GET HEAD POST", public=True, document=True),
    _route(r"/edgeapp/session", "WEBSOCKET"),
    _route(r"/edgeapp/user", "GET"),
    _route(r"/edgeapp/sample", "GET"),
    _route(r"/edgeapp/export", "POST"),
    _route(r"/edgeapp/sound/[0-9]{1,18}", "GET HEAD"),
    _route(r"/edgeapp/upload/[\w-]{1,64}", "PUT"),
    # Programs.
    _v1(r"/v1/models", "GET HEAD", "/v1/models"),
    _v1(r"/v1/models/[\w./-]{1,200}", "GET HEAD", "/v1/models/{model}"),
    _v1(r"/v1/audio/transcriptions", "POST", "/v1/audio/transcriptions"),
    _v1(r"/v1/audio/translations", "POST", "/v1/audio/translations"),
    _v1(r"/v1/openapi\.json", "GET HEAD", "/v1/openapi.json"),
    _v1(r"/v1/docs", "GET HEAD", "/v1/docs", document=True),
    _v1(r"/v1/realtime", "WEBSOCKET", "/v1/realtime"),
    _v1(r"/v1/live", "WEBSOCKET", "/v1/live"),
    # LibreTranslate's clients send their key in the body, which the handlers check.
    _libretranslate(r"/translate", "POST", "/translate"),
    _libretranslate(r"/detect", "POST", "/detect"),
    _libretranslate(r"/translate_file", "POST", "/translate_file"),
    # The secret in the address is the permission, for who follows a link as well.
    _libretranslate(
        r"/download_file/[\w-]{1,64}/[^/\x00-\x1f]{1,200}", "GET", "/download_file", document=True
    ),
    _libretranslate(r"/languages", "GET HEAD", "/languages", cross_origin=CrossOrigin.NOWHERE),
    _libretranslate(
        r"/frontend/settings", "GET HEAD", "/frontend/settings", cross_origin=CrossOrigin.NOWHERE
    ),
    _libretranslate(r"/health", "GET HEAD", "/health", cross_origin=CrossOrigin.NOWHERE),
    _program(r"/metrics", "GET HEAD", "/metrics"),
    # Gradio's named endpoints. Recordings are uploaded to EdgeApp's own route.
    _program(r"/config", "GET", "/config", gradio=True),
    _program(r"/gradio_api/info", "GET", "/gradio_api/info", gradio=True),
    _program(r"/gradio_api/upload", "POST", "/gradio_api/upload"),
    _program(r"/gradio_api/queue/join", "POST", "/gradio_api/queue/join", gradio=True),
    _program(
        r"/gradio_api/queue/data",
        "GET",
        "/gradio_api/queue/data",
        gradio=True,
        query=re.compile(rb"session_hash=[\w-]{8,64}", re.ASCII),
    ),
    _program(r"/gradio_api/cancel", "POST", "/gradio_api/cancel", gradio=True),
    _program(
        rf"/gradio_api/call/(v2/)?{_ENDPOINTS}", "POST", "/gradio_api/call/{endpoint}", gradio=True
    ),
    _program(
        rf"/gradio_api/call/{_ENDPOINTS}/[0-9a-f]{{32}}",
        "GET",
        "/gradio_api/call/{endpoint}/{event}",
        gradio=True,
    ),
    # Gradio's page.
    _route(r"/", "GET HEAD", document=True, gradio=True),
    _route(r"/theme\.css", "GET", gradio=True),
    _route(r"/assets/[\w-]{1,80}\.(css|js)", "GET", gradio=True),
    _route(r"/static/js/iframeResizer\.contentWindow\.min\.js", "GET", gradio=True),
)

# What OpenAI's clients ask for beyond that. Pages of other sites can read that it is not there.
_UNKNOWN_V1 = _v1(r"/v1/.*", "GET HEAD POST", "/v1/unknown")

_POLICY = "; ".join(
    (
        "default-src 'self'",
        # Gradio's page has inline scripts, and evaluates strings.
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
SECURITY_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SecurityMiddleware:
    """ASGI middleware. It must be the outermost, so that error responses get the headers too.

    Args:
        app: The application behind it.
        logins: Who sends a request.
        hosts: The names of this machine.
        allow_origins: Origins whose pages may use the routes of programs.
        proxies: Reverse proxies whose headers say where a request comes from.
    """

    def __init__(
        self,
        app: ASGIApp,
        logins: Logins,
        *,
        hosts: HostNames,
        allow_origins: frozenset[str],
        proxies: TrustedProxies,
    ) -> None:
        self.app, self._logins, self._hosts, self._proxies = app, logins, hosts, proxies
        self._origins = Origins(logins, allow_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope = self._proxies.resolve(scope)
        route = _find_route(scope)
        origin = _sender(HTTPConnection(scope), route)
        added = dict(SECURITY_HEADERS)
        if scope["path"].startswith("/edgeapp/static/"):
            added["cache-control"] = "no-cache"  # revalidated at each use, by ETag
        shared = route is not None and route.cross_origin is not None
        if shared and origin is not None:
            scope = self._origins.without_cookies(scope, origin)
            added |= self._origins.reply_headers(origin)

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", f"{_DENIAL}.start"):
                headers = MutableHeaders(scope=message)
                headers.update(added)
                if shared:
                    headers.add_vary_header("Origin")
            await send(message)

        connection = HTTPConnection(scope)
        status, reason = self._check(connection, route, origin)
        if not status:
            if route is not None and route.gradio:
                known = route.query and route.query.fullmatch(scope["query_string"])
                scope = {**scope, "query_string": scope["query_string"] if known else b""}
            await self.app(scope, receive, send_with_headers)
        elif scope["type"] == "websocket" and _DENIAL not in scope.get("extensions", ()):
            await receive()
            await send({"type": "websocket.close", "code": CLOSE_FORBIDDEN, "reason": reason})
        elif status == 401 and scope["path"] == "/":
            await RedirectResponse("/login", 303)(scope, receive, send_with_headers)
        elif status == _PREFLIGHT and route is not None:
            permission = Response(None, 204, preflight_headers(connection, route.methods))
            await permission(scope, receive, send_with_headers)
        else:
            headers = {}
            if status == 405 and route is not None:
                headers["allow"] = ", ".join(sorted(route.methods))
            elif status == 401:
                headers["www-authenticate"] = "Bearer"
            elif status == 429:
                headers["retry-after"] = "60"
            reply = error_reply(scope["path"], status, reason, headers=headers)
            await reply(scope, receive, send_with_headers)

    def _check(
        self, connection: HTTPConnection, route: AllowedRoute | None, origin: str | None
    ) -> tuple[int, str]:
        """Return (0, "") for a request that is allowed, else the HTTP status and the reason.

        Args:
            connection: The request.
            route: Its route.
            origin: The origin of the page of another site that sends it; None: there is none.
        """
        if reason := self._hosts.refusal(connection.headers.get("host", "")):
            return 400, reason
        if route is None:
            return 404, "not found"
        method = _method(connection.scope)
        try:
            # Browsers let any website send requests to any host.
            if origin is not None:
                if route.cross_origin is None:
                    return 403, "this is for EdgeApp's own page"
                if is_preflight(connection) and self._origins.answered(origin):
                    return _PREFLIGHT, ""
                if reason := self._origins.refusal(connection, origin, route.cross_origin):
                    return 403, reason
            if route is _UNKNOWN_V1:
                return 404, "not found"
            if method not in route.methods:
                return 405, f"{method[:20]} is not allowed here"
            if not route.public and self._logins.use(connection) is None:
                return 401, "log in first, or send a token: Authorization: Bearer …"
        except TooManyAttempts:
            return 429, "too many wrong tokens; wait for a minute"
        return 0, ""


def _find_route(scope: Scope) -> AllowedRoute | None:
    # The router strips root_path from the path before it dispatches. EdgeApp serves at the root.
    return None if scope.get("root_path") else _route_of(scope["path"])


def _route_of(path: str) -> AllowedRoute | None:
    unknown = _UNKNOWN_V1 if path.startswith("/v1/") else None
    return next((route for route in ALLOWED_ROUTES if route.path.fullmatch(path)), unknown)


def program_route(path: str) -> str | None:
    """The name of a program's route, without parameters; None: the path is not a program's."""
    route = _route_of(path)
    return None if route is None else route.program


def _method(scope: Scope) -> str:
    return "WEBSOCKET" if scope["type"] == "websocket" else str(scope["method"])


def _sender(connection: HTTPConnection, route: AllowedRoute | None) -> str | None:
    """Return the origin of the page of another site that sends a request or embeds the resource.

    Returns:
        "" if the browser does not name it; None: there is no such page, or its link may lead here.
    """
    headers, websocket = connection.headers, connection.scope["type"] == "websocket"
    if websocket and "origin" not in headers and (route is None or route.program is None):
        return ""  # browsers always send the origin of a WebSocket
    origin = foreign_origin(connection)
    link = headers.get("sec-fetch-mode") == "navigate"
    if link and headers.get("sec-fetch-dest") == "document" and "origin" not in headers:
        return None if route is not None and route.document else origin
    return origin
