"""What reaches Gradio's queue: calls of named endpoints, bounded, each client's apart from others'.

Gradio trusts the name of a session that a client sends: who knows it reads the session's results.
Here the name is joined with the person who sends it. Recordings become tokens (see `uploads`), so
that Gradio reads no file and fetches no address.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import json
import re
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from starlette.requests import ClientDisconnect, HTTPConnection, Request

from edgeapp.server.api.calls import Calls
from edgeapp.server.api.errors import ApiError
from edgeapp.server.api.uploads import check_length
from edgeapp.server.client_json import read_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PREFIX", "GradioGate"]

PREFIX = "/gradio_api/"
_MAX_BODY_BYTES = 2 << 20
_MAX_VALUES = 32
_SESSION = re.compile(r"[\w-]{8,64}", re.ASCII)
_EVENT = re.compile(r"[0-9a-f]{32}")
_STREAMS = ("queue/data", "call/")  # GET of these sends the results
_BY_NAME = "call/v2/"  # the arguments are an object, not a list


class GradioGate:
    """ASGI middleware in front of the application with Gradio's page.

    Args:
        app: The application.
        person_of: Whom a request belongs to.
        calls: The calls that run.
        functions: The functions that can be called, by their number: name and parameters.
        has_results: Whether Gradio knows a session; it would fail after its reply has begun.
        forget_info: Makes Gradio write its next description anew. It would keep the first one,
            with the host that this first client has named.
    """

    def __init__(
        self,
        app: ASGIApp,
        person_of: Callable[[HTTPConnection], str],
        calls: Calls,
        functions: Sequence[tuple[str, Sequence[inspect.Parameter]]],
        has_results: Callable[[str], bool],
        forget_info: Callable[[], None],
    ) -> None:
        self.app, self._person_of, self._calls = app, person_of, calls
        self._functions, self._has_results = functions, has_results
        self._forget_info = forget_info
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path != "/config" and not path.startswith(PREFIX):
            await self.app(scope, receive, send)
            return
        # Gradio would write the host that these name into its replies.
        headers = [pair for pair in scope["headers"] if not pair[0].startswith(b"x-")]
        scope = {**scope, "headers": headers}
        route = path.removeprefix(PREFIX)
        try:
            if route in ("queue/join", "cancel") or (
                route.startswith("call/") and scope["method"] == "POST"
            ):
                await self._call(route, scope, receive, send)
            elif route == "info":
                self._forget_info()
                await self.app(scope, receive, send)
            elif route.startswith(_STREAMS):
                await self._stream(route, scope, receive, send)
            else:
                await self.app(scope, receive, send)
        except ApiError as error:
            await error.reply(path)(scope, receive, send)

    async def _call(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request with a body, which is checked, and replaced by what Gradio needs of it."""
        try:
            values = await _body(Request(scope, receive))
        except ClientDisconnect:
            return
        person = self._person_of(HTTPConnection(scope))
        if route == "cancel":
            session = self._session(person, values.get("session_hash"))
            event = values.get("event_id")
            if not isinstance(event, str) or not _EVENT.fullmatch(event):
                raise ApiError(400, "'event_id' is not the id of a call")
            content = {
                "session_hash": session, "fn_index": self._function(values), "event_id": event,
            }  # fmt: skip
        elif route.startswith(_BY_NAME):
            route = route.removeprefix(_BY_NAME)
            content = {"data": _data(self._arguments(route, values))}
            path = f"{PREFIX}call/{route}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        else:
            content = {"data": _data(values.get("data"))}
            if route == "queue/join":
                content["session_hash"] = self._session(person, values.get("session_hash"))
                content["fn_index"] = self._function(values)
        body = json.dumps(content).encode()
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self.app({**scope, "headers": headers}, _replay(body, receive), send)

    async def _stream(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        """The results of a session, or of one call. A client that leaves ends what runs."""
        session = route.rpartition("/")[2]
        if route == "queue/data":
            asked = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [""])
            session = self._session(self._person_of(HTTPConnection(scope)), asked[0])
            query = urlencode({"session_hash": session}).encode()
            scope = {**scope, "query_string": query}
        if not self._has_results(session):
            raise ApiError(404, "there is no such call, or its results were read")
        complete = False

        async def noting_the_end(message: Message) -> None:
            nonlocal complete
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                complete = True

        async def noting_the_client() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not complete:
                self._calls.end(session)
            return message

        try:
            await self.app(scope, noting_the_client, noting_the_end)
        finally:
            if not complete:
                self._calls.end(session)

    def _session(self, person: str, name: object) -> str:
        """The name under which Gradio knows a client's session."""
        if not isinstance(name, str) or not _SESSION.fullmatch(name):
            raise ApiError(400, "'session_hash' must be 8 to 64 letters, digits, - or _")
        return hmac.digest(self._key, f"{name} {person}".encode(), hashlib.sha256).hex()

    def _function(self, values: dict[str, Any]) -> int:
        index = values.get("fn_index")
        if not isinstance(index, int) or not 0 <= index < len(self._functions):
            raise ApiError(400, "'fn_index' is not one of the functions in GET /config")
        return index

    def _arguments(self, function: str, values: dict[str, Any]) -> list[Any]:
        """The arguments of a call, in order, of an object that names them."""
        parameters = dict(self._functions)[function]
        known = {parameter.name for parameter in parameters}
        if unknown := sorted(set(values) - known):
            names = ", ".join(parameter.name for parameter in parameters) or "none"
            raise ApiError(400, f"unknown argument {unknown[0][:40]!r}; there are: {names}")
        for parameter in parameters:
            if parameter.default is inspect.Parameter.empty and parameter.name not in values:
                raise ApiError(400, f"the argument {parameter.name!r} is missing")
        return [values.get(parameter.name, parameter.default) for parameter in parameters]


async def _body(request: Request) -> dict[str, Any]:
    check_length(request, _MAX_BODY_BYTES)
    try:
        values = read_json(await request.body())
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ApiError(400, "the request must be a JSON object")
    return values


def _data(values: object) -> list[Any]:
    """The arguments of a call: plain values, and recordings that were uploaded."""
    if not isinstance(values, list) or len(values) > _MAX_VALUES:
        raise ApiError(400, "'data' must be the list of arguments")
    return [_argument(value) for value in values]


def _argument(value: object) -> object:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict) and isinstance(token := value.get("path"), str):
        if ":" in token or "/" in token:
            raise ApiError(400, "a recording must be uploaded first; addresses are not fetched")
        # Without Gradio's mark of a file.
        return {"upload": token[:64], "name": str(value.get("orig_name") or "")[:200]}
    raise ApiError(400, "an argument is a string, a number, true, false, null or a recording")


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replaying() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replaying
