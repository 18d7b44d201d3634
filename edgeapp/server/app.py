"""The application behind the page: Gradio's part and our own, behind one guard."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.server.shared_models import SharedModelPool

if TYPE_CHECKING:
    from edgeapp.server.options import ServerOptions
    from edgeapp.server.security import SecurityMiddleware

__all__ = ["make_app"]


def make_app(
    pool: SharedModelPool, options: ServerOptions, history_path: Path | None
) -> tuple[SecurityMiddleware, Callable[[], None]]:
    """The application, and what to call when it has ended."""
    _be_private()
    import gradio as gr
    from fastapi import FastAPI

    from edgeapp.server.routes import app_routes
    from edgeapp.server.security import SecurityMiddleware
    from edgeapp.ui.page import make_page
    from edgeapp.ui.theme import head, style, theme

    ours = app_routes(pool, options, history_path)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.router.routes += ours.routes
    gr.mount_gradio_app(
        app,
        make_page(),
        path="/",
        root_path="",  # not the environment's: the guard judges paths from the root
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
    # Around the application, not in it: so that its answer to an uncaught error is guarded, too.
    guarded = SecurityMiddleware(app, person=ours.person, loopback=options.loopback)
    return guarded, ours.close


def _be_private() -> None:
    """Before Gradio is imported: it asks nobody anything, and keeps files where only we look."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "GRADIO_TEMP_DIR" not in os.environ:
        os.environ["GRADIO_TEMP_DIR"] = folder = tempfile.mkdtemp(prefix="edgeapp-page-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
