"""EdgeApp's own routes: for programs; WebSocket, uploads, exports, login, files of the page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from edgeapp.history import History
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.auth import Logins
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.api.routes import api_routes, make_service
from edgeapp.server.api.service import ApiService
from edgeapp.server.downloads import Downloads
from edgeapp.server.fairness import FairThreads
from edgeapp.server.page.exports import Exports
from edgeapp.server.page.page_api import PageApi
from edgeapp.server.page.sounds import Sounds
from edgeapp.server.sessions import Sessions
from edgeapp.server.socket import PageSocket
from edgeapp.server.uploads import Uploads
from edgeapp.server.viewers.broadcast import Broadcasts
from edgeapp.server.viewers.sharing import Sharing
from edgeapp.server.viewers.socket import ViewerSocket
from edgeapp.ui import STATIC
from pipelines import EdgeError
from pipelines.hub import assets_folder

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions

__all__ = ["AppRoutes", "app_routes"]


@dataclass(frozen=True)
class AppRoutes:
    """EdgeApp's routes and what belongs to them.

    Attributes:
        routes: The routes.
        service: What the interfaces for programs share.
        make_login_link: Makes the secret of a link, /enter/SECRET, that logs a user in once.
        close: To be called when the server has ended.
    """

    routes: list[BaseRoute]
    service: ApiService
    make_login_link: Callable[[str], str]
    close: Callable[[], None]


def app_routes(
    pool: ModelPool,
    options: ServerOptions,
    history_path: Path | None,
    tokens: TokenFile | None = None,
) -> AppRoutes:
    """Make all routes that are not Gradio's.

    Args:
        pool: The shared models.
        options: Options of the server.
        history_path: The history file. None: no history is kept.
        tokens: Of programs.
    """
    sessions = Sessions(options.sessions, options.sessions_per_person)
    history = History(history_path, sound_mb=pool.settings.history_sound_mb)
    threads = FairThreads()
    logins = Logins(dict(options.logins), tokens, required=options.login_required)
    service = make_service(pool, options, logins, sessions)
    uploads = Uploads(
        options.upload_mb, options.minutes, options.sessions, options.uploads_per_person
    )
    api = PageApi(pool, sessions, can_change_models=options.trusted)
    exports = Exports(threads, logins.person_of)
    broadcasts = Broadcasts(pool)
    viewers = ViewerSocket(broadcasts, threads)
    sharing = Sharing(broadcasts, options, logins.links.make)
    downloads = Downloads()
    sounds = Sounds(history, logins.user_of)

    async def user(request: Request) -> Response:
        """For a page whose WebSocket was refused: the middleware replies 401 without a login."""
        return JSONResponse({"user": logins.user_of(request) or ""})

    def close() -> None:
        downloads.close()
        sessions.close()
        broadcasts.close()
        service.close()
        socket.close()
        uploads.remove_all()
        with suppress(EdgeError):  # it cannot be used; this was said before
            history.empty_trash()
        history.close()

    socket = PageSocket(pool, sessions, uploads, api, history, logins, threads, sharing, downloads)
    logins.on_logout = socket.recheck_logins
    routes: list[BaseRoute] = [
        *api_routes(service, sessions),
        WebSocketRoute("/edgeapp/session", socket.serve),
        Route("/edgeapp/upload/{token}", uploads.receive, methods=["PUT"]),
        Route("/edgeapp/export", exports.export, methods=["POST"]),
        Route("/edgeapp/sound/{record:int}", sounds.get),
        Route("/edgeapp/user", user),
        Route("/view/{token}", viewers.page),
        Route("/overlay/{token}", viewers.page),
        WebSocketRoute("/edgeapp/view/{token}", viewers.serve),
        Route("/enter/{secret}", logins.link_page),
        Route("/enter/{secret}", logins.use_link, methods=["POST"]),
        Route("/edgeapp/sample", _sample),
        Route("/login", logins.login_page),
        Route("/login", logins.log_in, methods=["POST"]),
        Route("/logout", logins.log_out, methods=["POST"]),
        Route("/manifest.json", _manifest),
        Route("/favicon.ico", _favicon),
        Mount("/edgeapp/static", StaticFiles(directory=STATIC)),
    ]
    return AppRoutes(routes, service, logins.links.make, close)


async def _sample(request: Request) -> Response:
    """A recording to try the page with."""
    return FileResponse(assets_folder() / "samples" / "talk.flac", media_type="audio/flac")


async def _favicon(request: Request) -> Response:
    return FileResponse(STATIC / "icon-192.png")


async def _manifest(request: Request) -> Response:
    """The web app manifest, which makes the page installable."""
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
