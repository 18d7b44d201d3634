"""The viewers' page and its WebSocket: captions out, the choice of a language in.

The secret in the address is all that a viewer needs; it gives nothing but the captions.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import FileResponse
from starlette.websockets import WebSocketDisconnect

from edgeapp.server.access.addresses import visitor_key
from edgeapp.server.client_json import read_json
from edgeapp.server.fairness import FairThreads, MessageRates
from edgeapp.server.transport.outbox import Outbox
from edgeapp.server.transport.websockets import close_when_full, serve_parts
from edgeapp.ui import STATIC
from pipelines import OptionError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

    from edgeapp.server.sessions import Send
    from edgeapp.server.viewers.broadcast import Broadcast, Broadcasts

__all__ = ["ViewerSocket"]

_MAX_MESSAGE = 1_000  # characters
_MESSAGE_COST = 50.0  # see MessageRates: five a second
_CHECKED_S = 15.0  # how often an end is noticed
_GONE = 4410  # a close code of ours


class ViewerSocket:
    """The routes of viewers.

    Args:
        broadcasts: All shared sessions.
        threads: For requests.
    """

    def __init__(self, broadcasts: Broadcasts, threads: FairThreads) -> None:
        self._broadcasts, self._threads = broadcasts, threads
        self._rates = MessageRates()

    async def page(self, request: Request) -> Response:
        """GET /view/TOKEN and /overlay/TOKEN."""
        if self._broadcasts.find(request.path_params["token"]) is None:
            return FileResponse(STATIC / "ended.html", 404)
        # Not from the browser's cache: the captions may have ended.
        return FileResponse(STATIC / "view.html", headers={"cache-control": "no-store"})

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one viewer until the browser leaves or the broadcast ends."""
        await websocket.accept()
        broadcast = self._broadcasts.find(websocket.path_params["token"])
        if broadcast is None:
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.close(_GONE)
            return
        outbox = Outbox()
        viewer = outbox.put  # one object: it is the viewer's identity
        parts = (
            partial(self._read, websocket, broadcast, outbox, viewer),
            partial(_write, websocket, broadcast, outbox),
            partial(close_when_full, outbox),
        )
        await serve_parts(websocket, parts, lambda: broadcast.leave(viewer))

    async def _read(
        self, websocket: WebSocket, broadcast: Broadcast, outbox: Outbox, viewer: Send
    ) -> int:
        """Join, and follow the viewer's choices. Returns a close code."""
        person = visitor_key(websocket.client.host) if websocket.client else ""
        while True:
            frame = await websocket.receive()
            if frame["type"] == "websocket.disconnect":
                return 0
            await self._rates.take(f"viewer {person}", _MESSAGE_COST)
            target = _language(frame.get("text") or "")
            if target is None:
                continue
            try:
                # In a thread: it waits for what another thread is about to send.
                await self._threads.run(f"viewer {person}", partial(broadcast.join, viewer, target))
            except OptionError as error:
                outbox.put({"type": "view_problem", "message": str(error)})


async def _write(websocket: WebSocket, broadcast: Broadcast, outbox: Outbox) -> int:
    while True:
        text = await outbox.get(_CHECKED_S)
        if text is not None:
            await websocket.send_text(text)
        elif broadcast.ended:
            return _GONE


def _language(text: str) -> str | None:
    """The language in a viewer's message, {"target": "de"}; None: it is not such a message."""
    if len(text) > _MAX_MESSAGE:
        return None
    try:
        target = read_json(text)["target"]
    except (ValueError, KeyError, TypeError):
        return None
    return target if isinstance(target, str) else None
