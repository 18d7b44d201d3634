"""Compression of what everybody gets: the page and its scripts, which hold no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware.gzip import GZipMiddleware

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["CompressedPage"]

_LEVEL = 6


class CompressedPage:
    """ASGI middleware: gzip for the page and its files, nothing else.

    Replies with texts of a user are not compressed: their lengths would tell about them, and long
    ones would hold up the other connections. Gradio's own files are compressed already.

    Args:
        app: The application behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._compressed = GZipMiddleware(app, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and (path == "/" or path.startswith("/edgeapp/static/")):
            await self._compressed(scope, receive, send)
        else:
            await self.app(scope, receive, send)
