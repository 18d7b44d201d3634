"""`edgeapp ui`: the browser page."""

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
    Lan,
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

__all__ = ["ui"]


def ui(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0: any free port.")] = 7860,
    lan: Lan = False,
    auth: Auth = None,
    no_auth: NoAuth = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    ssl_certfile: SslCertfile = None,
    ssl_keyfile: SslKeyfile = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
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
    """Open the page in the browser: live captions, recordings, text, models.

    By default only this machine can reach the page. It loads no resources from other servers.
    Programs reach the same server: see `edgeapp serve`.
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
            lan=lan,
            host=host,
            port=port,
            open_to_all=no_auth,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            sessions=max_sessions,
            upload_mb=max_upload_mb,
            minutes=max_minutes,
            browser=open_browser,
        )
