"""`edgeapp serve`: the server for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeapp.commands.options.common import ComputeType, Debug, Device, Threads, settings_from_flags
from edgeapp.commands.options.server import (
    AllowHost,
    AllowOrigin,
    Auth,
    History,
    Host,
    MaxMinutes,
    MaxSessions,
    MaxUploadMb,
    MemoryLimitSize,
    NoAuth,
    SslCertfile,
    SslKeyfile,
    TrustedProxy,
    run_server,
)
from edgeapp.exit_codes import exit_with_code

__all__ = ["serve"]


def serve(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0: any free port.")] = 8000,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Also serve the page of `edgeapp ui`.")
    ] = False,
    auth: Auth = None,
    no_auth: NoAuth = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    ssl_certfile: SslCertfile = None,
    ssl_keyfile: SslKeyfile = None,
    max_sessions: MaxSessions = 4,
    max_upload_mb: MaxUploadMb = 512,
    max_minutes: MaxMinutes = 180.0,
    memory_limit: MemoryLimitSize = None,
    trusted_proxy: TrustedProxy = None,
    keep_history: History = None,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Serve programs that speak OpenAI's audio interface or LibreTranslate's.

    By default only this machine can reach the server. Other machines need a token (`edgeapp
    tokens new NAME`) or a login (--auth). Clients set their base URL to http://127.0.0.1:8000/v1;
    the model whisper-1 is the best one here. Each request is a line of JSON on stderr.
    """
    with exit_with_code(debug):
        run_server(
            settings_from_flags(device, compute_type, threads),
            keep_history=keep_history,
            auth=auth,
            allow_host=allow_host,
            allow_origin=allow_origin,
            trusted_proxy=trusted_proxy,
            memory_limit=memory_limit,
            host=host,
            port=port,
            page=page,
            open_to_all=no_auth,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            sessions=max_sessions,
            upload_mb=max_upload_mb,
            minutes=max_minutes,
            browser=False,
        )
