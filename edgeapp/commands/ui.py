"""`edgeapp ui`: the browser page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.options import ComputeType, Debug, Device, Threads, settings_from_flags
from edgeapp.exit_codes import exit_with_code

__all__ = ["ui"]


def ui(
    host: Annotated[
        str, typer.Option("--host", help="Address to serve on; 0.0.0.0: all networks.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0: any free port.")] = 7860,
    auth: Annotated[
        str | None,
        typer.Option("--auth", help="user:password, or a file with one such line per user."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option("--ssl-certfile", help="TLS certificate; serves https.")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None, typer.Option("--ssl-keyfile", help="Private key of the certificate.")
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    max_sessions: Annotated[
        int, typer.Option("--max-sessions", help="Maximum number of concurrent sessions.")
    ] = 4,
    max_upload_mb: Annotated[
        int, typer.Option("--max-upload-mb", help="Maximum size of an upload in MB.")
    ] = 512,
    max_minutes: Annotated[
        float, typer.Option("--max-minutes", help="Maximum length of a recording in minutes.")
    ] = 180.0,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="Reverse proxy, an address or a network, whose X-Forwarded-For is believed; "
            "may be repeated.",
        ),
    ] = None,
    keep_history: Annotated[
        bool | None,
        typer.Option(
            "--history/--no-history",
            help="Keep past sessions on this machine. Default: as in the settings, which is yes.",
        ),
    ] = None,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Open the page in the browser: live captions, recordings, text, models.

    By default only this machine can reach the page. It loads no resources from other servers.
    """
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
        if keep_history is not None:
            # A history file that the settings name is kept.
            settings = replace(settings, history=keep_history and (settings.history or True))
        from edgeapp.server.access.addresses import TrustedProxies
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
            proxies=TrustedProxies.parse(trusted_proxy or settings.trusted_proxy.split(",")),
        )
        serve(settings, options)
