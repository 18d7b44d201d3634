"""Our own addresses: the page's line to the server, uploads, exports, the door, static files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from edgeapp.history import History
from edgeapp.server.api import PageApi
from edgeapp.server.auth import Logins
from edgeapp.server.exports import export
from edgeapp.server.sessions import Sessions
from edgeapp.server.shared_models import SharedModelPool
from edgeapp.server.socket import PageSocket
from edgeapp.server.uploads import Uploads
from edgeapp.ui import STATIC

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions

__all__ = ["AppRoutes", "app_routes"]


@dataclass(frozen=True)
class AppRoutes:
    """person: who a connection is from, None for a stranger. close: to be called at the end."""

    routes: list[BaseRoute]
    person: Callable[[HTTPConnection], str | None]
    close: Callable[[], None]


def app_routes(
    pool: SharedModelPool, options: ServerOptions, history_path: Path | None
) -> AppRoutes:
    """Everything that is not Gradio's. history_path: None keeps nothing."""
    sessions, history = Sessions(options.sessions), History(history_path)
    logins = Logins(dict(options.logins))
    uploads = Uploads(options.upload_mb, options.minutes, options.sessions)
    desk = PageApi(pool, sessions, changing=options.trusted)

    def history_of(connection: HTTPConnection) -> History:
        return history.of(logins.person(connection) or "")

    async def person(request: Request) -> Response:
        """For a page whose WebSocket is refused: the guard answers 401 if the login is missing."""
        return JSONResponse({"person": logins.person(request) or ""})

    def close() -> None:
        sessions.close()
        uploads.remove_all()
        history.close()

    door = PageSocket(pool, sessions, uploads, desk, history_of, logins.person)
    logins.on_leave = door.recheck
    routes: list[BaseRoute] = [
        WebSocketRoute("/edgeapp/session", door.open),
        Route("/edgeapp/upload/{token}", uploads.receive, methods=["PUT"]),
        Route("/edgeapp/export", export, methods=["POST"]),
        Route("/edgeapp/person", person),
        Route("/login", logins.page),
        Route("/login", logins.enter, methods=["POST"]),
        Route("/logout", logins.leave, methods=["POST"]),
        Route("/manifest.json", _manifest),
        Route("/favicon.ico", _favicon),
        Mount("/edgeapp/static", StaticFiles(directory=STATIC)),
    ]
    return AppRoutes(routes, logins.person, close)


async def _favicon(request: Request) -> Response:
    return FileResponse(STATIC / "icon-192.png")


async def _manifest(request: Request) -> Response:
    """What makes the page installable."""
    icons = [
        {"src": f"/edgeapp/static/{name}.png", "sizes": f"{size}x{size}", "type": "image/png"}
        for name, size in (("icon", 512), ("icon-192", 192))
    ]
    content: dict[str, Any] = {
        "id": "/",
        "name": "EdgeApp",
        "short_name": "EdgeApp",
        "description": "Live captions and translation, on your own machine.",
        "start_url": "/",
        "display": "standalone",
        "background_color": "#f7f5f1",
        "theme_color": "#f7f5f1",
        "icons": [*icons, icons[0] | {"purpose": "maskable"}],
    }
    return JSONResponse(content, media_type="application/manifest+json")
