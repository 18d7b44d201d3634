"""One line of JSON on stderr for each request of a program: no content, no secrets."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders

from edgeapp.server.api.service import LOG_FIELDS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from edgeapp.server.api.metrics import Metrics

__all__ = ["RequestLog"]


class RequestLog:
    """ASGI middleware: gives each request of a program an id, counts it and logs it.

    Args:
        app: The application behind it.
        metrics: Where requests are counted.
        route_of: The name of a path's route, without parameters; None: it is not a program's.
        write: Writes a line. None: to stderr.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        route_of: Callable[[str], str | None],
        write: Callable[[str], None] | None = None,
    ) -> None:
        self.app, self._metrics, self._route_of = app, metrics, route_of
        self._write = write or _write_to_stderr

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route_of(scope["path"]) if scope["type"] in ("http", "websocket") else None
        if route is None:
            await self.app(scope, receive, send)
            return
        request_id, began = f"req_{secrets.token_hex(12)}", time.monotonic()
        fields: dict[str, Any] = {}
        status, sent = 500, 0

        async def send_with_id(message: Message) -> None:
            nonlocal status, sent
            if message["type"].endswith("response.start"):
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            elif message["type"].endswith("response.body"):
                sent += len(message.get("body", b""))
            elif message["type"] == "websocket.accept":
                status = 101
            elif message["type"] == "websocket.close" and status == 500:
                status = 403
            await send(message)

        try:
            await self.app({**scope, LOG_FIELDS: fields}, receive, send_with_id)
        finally:
            seconds = time.monotonic() - began
            self._metrics.count_request(route, status, seconds)
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "request": request_id,
                "method": scope.get("method", "WEBSOCKET"),
                "route": route,
                "status": status,
                "seconds": round(seconds, 3),
                "bytes": sent,
                **fields,
            }
            self._write(json.dumps(line))


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
