"""Requests of other sites: which pages may use the routes of programs, and what browsers are told.

A browser lets any page send requests to any server, with the cookies that it has for the server.
A token proves that such a request is no forgery, because a page cannot know it unless the user has
given it to the page. A cookie proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from edgeapp.server.access.auth import NEEDS_TOKEN, Logins, bearer_token
from pipelines import OptionError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import Scope

__all__ = [
    "CrossOrigin",
    "Origins",
    "foreign_origin",
    "is_preflight",
    "parse_origins",
    "preflight_headers",
]

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)
_USUAL_PORTS = {"http": ":80", "https": ":443"}  # browsers leave them out
_ASKED_HEADERS = re.compile(r"[\w!#$%&'*+.^`|~, -]{1,1000}", re.ASCII)
_EXPOSED_HEADERS = "content-disposition, retry-after, x-request-id"
_PREFLIGHT_S = 600  # for so long a browser does not ask again


class CrossOrigin(Enum):
    """Where a page of another site sends its token to a route."""

    HEADER = "header"  # Authorization, or a subprotocol of a WebSocket
    ANYWHERE = "anywhere"  # `api_key` in the query or the body, too
    NOWHERE = "nowhere"  # the route needs no token


class Origins:
    """Decides which pages of other sites may use the routes of programs.

    Args:
        logins: Whose tokens are accepted.
        allowed: Origins that are trusted as the server's own page is, in lower case.
    """

    def __init__(self, logins: Logins, allowed: frozenset[str]) -> None:
        self._logins, self._allowed = logins, allowed

    def without_cookies(self, scope: Scope, origin: str) -> Scope:
        """Return the scope of a request of another site: only a token says who sends it."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"cookie"]
        return {**scope, "headers": headers, NEEDS_TOKEN: origin not in self._allowed}

    def answered(self, origin: str) -> bool:
        """Return whether a page with this origin may read replies, errors too."""
        return bool(origin) and (origin in self._allowed or self._logins.has_tokens)

    def refusal(self, connection: HTTPConnection, origin: str, where: CrossOrigin) -> str:
        """Return why a request of another site is refused, or "" if it is not.

        If the token can be in the body, the handler of the route checks it.

        Args:
            connection: The request.
            origin: Its `foreign_origin`.
            where: Where the route takes tokens.
        """
        if origin in self._allowed:
            return ""
        keys = [bearer_token(connection)]
        if where is not CrossOrigin.HEADER:
            keys.append(connection.query_params.get("api_key", ""))
        if any(self._logins.user_of_token(key) is not None for key in keys):
            return ""
        if any(keys):
            self._logins.count_wrong_token(connection)
        later = where is CrossOrigin.ANYWHERE and connection.scope.get("method") == "POST"
        app = where is CrossOrigin.NOWHERE and not _may_be_website(origin)
        if self._logins.has_tokens and ((later and not any(keys)) or app):
            return ""
        sender = f"a page of {origin[:100]}" if origin else "a page of another site"
        remedies = [] if where is CrossOrigin.NOWHERE else ["it may send a token of this server"]
        if _ORIGIN.fullmatch(origin):
            remedies.append(f"the server may be started with --allow-origin {origin[:100]}")
        return ": ".join((f"this request comes from {sender}", ", or ".join(remedies))).rstrip(": ")

    def reply_headers(self, origin: str) -> dict[str, str]:
        """Return the CORS headers of a reply to a page of another site."""
        if not self.answered(origin):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": _EXPOSED_HEADERS,
        }


def foreign_origin(connection: HTTPConnection) -> str | None:
    """Return the origin of the page of another site that sends a request.

    Returns:
        "" if the browser does not name the origin; None if no such page sends the request.
    """
    headers = connection.headers
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is not None:
        own = {f"http://{host}", f"https://{host}"} if host else set()
        return None if origin in own else origin
    return "" if headers.get("sec-fetch-site") in ("cross-site", "same-site") else None


def is_preflight(connection: HTTPConnection) -> bool:
    """Return whether a browser asks for permission before it sends a request of a page."""
    return (
        connection.scope.get("method") == "OPTIONS"
        and "access-control-request-method" in connection.headers
    )


def preflight_headers(connection: HTTPConnection, methods: Iterable[str]) -> dict[str, str]:
    """Return the headers that permit a request, beside `Origins.reply_headers`.

    Args:
        connection: The preflight.
        methods: The methods of its route.
    """
    permitted = {
        "access-control-allow-methods": ", ".join(sorted({*methods} - {"WEBSOCKET"})),
        "access-control-max-age": str(_PREFLIGHT_S),
        "vary": "Access-Control-Request-Headers, Access-Control-Request-Private-Network",
    }
    asked = connection.headers.get("access-control-request-headers", "")
    if _ASKED_HEADERS.fullmatch(asked):
        permitted["access-control-allow-headers"] = asked
    if connection.headers.get("access-control-request-private-network") == "true":
        permitted["access-control-allow-private-network"] = "true"
    return permitted


def parse_origins(texts: Iterable[str]) -> frozenset[str]:
    """Read the values of --allow-origin.

    Raises:
        OptionError: One of them is not an origin, as `*` and `null` are not.
    """
    origins = set()
    for text in texts:
        origin = text.strip().lower()
        if not _ORIGIN.fullmatch(origin):
            raise OptionError(
                "--allow-origin takes a scheme, a name and a port, such as "
                f"http://localhost:3000, not {text!r}"
            )
        origins.add(origin.removesuffix(_USUAL_PORTS.get(origin.partition(":")[0], "")))
    return frozenset(origins)


def _may_be_website(origin: str) -> bool:
    """Return whether an origin is a website's or not named; extensions and apps have others.

    A website has the origin "null" in an <iframe sandbox>.
    """
    return origin in ("", "null") or origin.startswith(("http:", "https:"))
