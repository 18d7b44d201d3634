"""`edgeapp ui`: the browser page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.options import ComputeType, Debug, Device, Threads, chosen
from edgeapp.exit_codes import exit_with_code

__all__ = ["ui"]


def ui(
    host: Annotated[
        str, typer.Option("--host", help="Who may reach the page; 0.0.0.0: the whole network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any that is free.")] = 7860,
    auth: Annotated[
        str | None,
        typer.Option("--auth", help="user:password, or a file with a line of these for each user."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option("--ssl-certfile", help="Serve https with this certificate.")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None, typer.Option("--ssl-keyfile", help="The key of the certificate.")
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    max_sessions: Annotated[
        int, typer.Option("--max-sessions", help="How many may work at once.")
    ] = 4,
    max_upload_mb: Annotated[
        int, typer.Option("--max-upload-mb", help="The largest recording taken.")
    ] = 512,
    max_minutes: Annotated[
        float, typer.Option("--max-minutes", help="The longest recording taken.")
    ] = 180.0,
    keep_history: Annotated[
        bool, typer.Option("--history/--no-history", help="Keep past sessions on this machine.")
    ] = True,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Open the page in the browser: live captions, recordings, text, models.

    It is served by this machine to this machine, and asks nothing of any other.
    """
    with exit_with_code(debug):
        settings = chosen(device, compute_type, threads)
        if not keep_history:
            settings = replace(settings, history=False)
        from edgeapp.server.options import ServerOptions, read_logins
        from edgeapp.server.serve import serve

        options = ServerOptions(
            host=host,
            port=port,
            logins=read_logins(auth),
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            sessions=max_sessions,
            upload_mb=max_upload_mb,
            minutes=max_minutes,
            browser=open_browser,
        )
        serve(settings, options)
