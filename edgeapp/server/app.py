"""The ASGI application: Gradio's page and EdgeApp's routes behind one security middleware."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Mount

from edgeapp.model_pool import ModelPool
from edgeapp.temporary_folders import make_temporary_folder

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from edgeapp.server.access.tokens import TokenFile
    from edgeapp.server.options import ServerOptions
    from edgeapp.server.request_log import RequestLog
    from edgeapp.server.routes import AppRoutes

__all__ = ["make_app"]

_QUEUE_LOOKED_AT_S = 0.05  # how long a call of Gradio's interface waits at most
_REMEMBERED_CLIENTS = 64  # Gradio keeps the arguments of each one's last call


def make_app(
    pool: ModelPool,
    options: ServerOptions,
    history_path: Path | None,
    tokens: TokenFile | None = None,
) -> tuple[RequestLog, AppRoutes]:
    """Make the application.

    Args:
        pool: The shared models, restricted to installed ones.
        options: Options of the server.
        history_path: The history file. None: no history is kept.
        tokens: Of programs.

    Returns:
        The application, and the routes in it, which must be closed when the server has ended.
    """
    if options.page:
        _configure_gradio()  # before the first import of Gradio
    from edgeapp.server.access.security import SecurityMiddleware, program_route
    from edgeapp.server.request_log import RequestLog
    from edgeapp.server.routes import app_routes
    from edgeapp.server.transport.compression import CompressedPage

    own = app_routes(pool, options, history_path, tokens)
    app: ASGIApp = Starlette(routes=own.routes)
    if options.page:
        app = CompressedPage(_app_with_page(own, options))
    # Outside the application's own middleware: replies to uncaught errors get the headers too.
    secured = SecurityMiddleware(
        app,
        own.service.logins,
        hosts=options.host_names,
        allow_origins=options.allow_origins,
        proxies=options.proxies,
    )
    return RequestLog(secured, own.service.metrics, program_route), own


def _app_with_page(own: AppRoutes, options: ServerOptions) -> ASGIApp:
    import gradio as gr
    from fastapi import FastAPI

    from edgeapp.server.gradio_api.endpoints import GradioEndpoints
    from edgeapp.server.gradio_api.gate import GradioGate
    from edgeapp.server.gradio_api.uploads import GradioUploads
    from edgeapp.ui.page import make_page
    from edgeapp.ui.theme import head, style, theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    uploads = GradioUploads(own.service)
    app.router.routes += [*own.routes, *uploads.routes]
    page = make_page()
    endpoints = GradioEndpoints(own.service, uploads)
    functions = endpoints.add_to(page)
    # Gradio looks into its queue a thousand times a second, which takes 7 % of a core.
    page._queue.sleep_when_free = _QUEUE_LOOKED_AT_S
    page.state_session_capacity = _REMEMBERED_CLIENTS
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        root_path="",  # not the environment's: the middleware matches paths from the root
        server_name=options.host,
        server_port=options.port,
        footer_links=["api"],
        run_history=False,
        max_file_size=options.upload_mb << 20,  # clients read it; Gradio's own route is closed
        ssr_mode=False,
        pwa=True,
        show_error=True,
        mcp_server=False,
        theme=theme(),
        css=style(),
        head=head(),
    )
    (mounted,) = [
        route.app
        for route in app.routes
        if isinstance(route, Mount) and isinstance(route.app, gr.routes.App)
    ]
    return GradioGate(
        app,
        own.service.logins.person_of,
        endpoints.calls,
        functions,
        lambda session: session in page._queue.pending_messages_per_session,
        lambda: setattr(mounted, "api_info", None),
    )


def _configure_gradio() -> None:
    """Turn off analytics and make Gradio's file cache private; must run before its import."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # The monitor, which is closed: Gradio would compute its figures with pandas after each call.
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(1 << 62)
    os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "GRADIO_TEMP_DIR" not in os.environ:
        folder = make_temporary_folder("page")
        os.environ["GRADIO_TEMP_DIR"] = str(folder)
