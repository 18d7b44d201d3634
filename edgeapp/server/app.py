"""The ASGI application: Gradio's page and EdgeApp's routes behind one security middleware."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.model_pool import ModelPool
from edgeapp.temporary_folders import make_temporary_folder

if TYPE_CHECKING:
    from edgeapp.server.access.security import SecurityMiddleware
    from edgeapp.server.options import ServerOptions

__all__ = ["make_app"]


def make_app(
    pool: ModelPool, options: ServerOptions, history_path: Path | None
) -> tuple[SecurityMiddleware, Callable[[], None]]:
    """Make the application.

    Args:
        pool: The shared models, restricted to installed ones.
        options: Options of the server.
        history_path: The history file. None: no history is kept.

    Returns:
        The application, and a function to call when the server has ended.
    """
    _configure_gradio()
    import gradio as gr
    from fastapi import FastAPI

    from edgeapp.server.access.security import SecurityMiddleware
    from edgeapp.server.routes import app_routes
    from edgeapp.ui.page import make_page
    from edgeapp.ui.theme import head, style, theme

    own = app_routes(pool, options, history_path)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes += own.routes
    gr.mount_gradio_app(
        app,
        make_page(),
        path="/",
        root_path="",  # not the environment's: the middleware matches paths from the root
        server_name=options.host,
        server_port=options.port,
        footer_links=[],
        run_history=False,
        max_file_size=1,
        ssr_mode=False,
        pwa=True,
        show_error=True,
        mcp_server=False,
        theme=theme(),
        css=style(),
        head=head(),
    )
    # Outside FastAPI's own middleware, so that replies to uncaught errors get the headers too.
    secured = SecurityMiddleware(
        app, user_of=own.user_of, loopback=options.loopback, proxies=options.proxies
    )
    return secured, own.close


def _configure_gradio() -> None:
    """Turn off analytics and make Gradio's file cache private; must run before its import."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "GRADIO_TEMP_DIR" not in os.environ:
        folder = make_temporary_folder("page")
        os.environ["GRADIO_TEMP_DIR"] = str(folder)
