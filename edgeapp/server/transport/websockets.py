"""The parts of a WebSocket connection, which run side by side, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.console import print_traceback
from edgeapp.server.transport.outbox import Outbox

__all__ = ["IDLE", "INTERNAL_ERROR", "TRY_AGAIN_LATER", "close_when_full", "serve_parts"]

# Close codes of WebSocket.
INTERNAL_ERROR, TRY_AGAIN_LATER = 1011, 1013
IDLE = 4408  # ours, as the status 408 of HTTP: the client has sent nothing for too long
_REASONS = {IDLE: "idle"}
_CLOSING_S = 1.0

Part = Callable[[], Coroutine[Any, Any, int]]
"""Runs until the connection is to be closed. Returns a close code; 0: the client has left."""


async def serve_parts(
    websocket: WebSocket, parts: Iterable[Part], leave: Callable[[], None]
) -> None:
    """Run the parts of a connection until one of them ends; then close the connection.

    An unexpected error of a part is printed, and closes the connection.

    Args:
        websocket: The connection, accepted.
        parts: They read, write, or wait.
        leave: Called as soon as one part has ended, not when the client acknowledges the close
            frame: it may not.
    """
    tasks = {asyncio.create_task(part()) for part in parts}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leave()
        for task in tasks:
            task.cancel()
    await asyncio.wait(tasks)
    if code := max(_close_code(task) for task in tasks):
        # A client that reads nothing does not get the close frame either.
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            await asyncio.wait_for(websocket.close(code, _REASONS.get(code)), _CLOSING_S)


async def close_when_full(outbox: Outbox) -> int:
    """A part that ends when the client is too far behind."""
    await outbox.full.wait()
    return TRY_AGAIN_LATER


def _close_code(task: asyncio.Task[int]) -> int:
    if task.cancelled():
        return 0
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, (WebSocketDisconnect, RuntimeError)):
        return 0  # the client has left
    print_traceback(error)
    return INTERNAL_ERROR
