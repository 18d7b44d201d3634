"""Flags that `edgeapp serve` and `edgeapp ui` share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from edgeapp.settings import Settings, tls_folder

__all__ = [
    "AllowHost",
    "AllowOrigin",
    "Auth",
    "History",
    "Host",
    "Lan",
    "MaxMinutes",
    "MaxSessions",
    "MaxUploadMb",
    "MemoryLimitSize",
    "NoAuth",
    "SslCertfile",
    "SslKeyfile",
    "TrustedProxy",
    "run_server",
]

Host = Annotated[str, typer.Option("--host", help="Address to serve on; 0.0.0.0: all networks.")]
Lan = Annotated[
    bool,
    typer.Option(
        "--lan",
        help="For other devices in this network: serves https with a certificate of its own, and "
        "prints the address and a QR code that logs a device of yours in, once.",
    ),
]
Auth = Annotated[
    str | None,
    typer.Option("--auth", help="user:password, or a file with one such line per user."),
]
NoAuth = Annotated[
    bool,
    typer.Option(
        "--no-auth",
        help="Let other machines in without a login or a token (`edgeapp tokens`).",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="Further name under which this machine is reached, such as host.docker.internal; "
        "may be repeated.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="ORIGIN",
        help="Website whose pages may use the interfaces for programs, such as "
        "http://localhost:3000; may be repeated. Others need a token.",
    ),
]
SslCertfile = Annotated[
    Path | None, typer.Option("--ssl-certfile", help="TLS certificate; serves https.")
]
SslKeyfile = Annotated[
    Path | None, typer.Option("--ssl-keyfile", help="Private key of the certificate.")
]
MaxSessions = Annotated[
    int,
    typer.Option(
        "--max-sessions",
        help="Maximum number of sessions (of the page, of live captions of programs) and requests "
        "of programs at work at the same time, together; 64 more requests may wait.",
    ),
]
MaxUploadMb = Annotated[
    int, typer.Option("--max-upload-mb", help="Maximum size of an upload in MB.")
]
MaxMinutes = Annotated[
    float, typer.Option("--max-minutes", help="Maximum length of a recording in minutes.")
]
MemoryLimitSize = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Memory of the whole process, such as 6GB: idle models make room, and requests that "
        "do not fit are told to try again.",
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="Reverse proxy, an address or a network, whose X-Forwarded-For is believed; "
        "may be repeated.",
    ),
]
History = Annotated[
    bool | None,
    typer.Option(
        "--history/--no-history",
        help="Keep past sessions on this machine. Default: as in the settings, which is yes; no "
        "where --no-auth lets other machines in.",
    ),
]


def run_server(
    settings: Settings,
    *,
    keep_history: bool | None,
    auth: str | None,
    allow_host: list[str] | None,
    allow_origin: list[str] | None,
    trusted_proxy: list[str] | None,
    memory_limit: str | None,
    lan: bool = False,
    **options: Any,
) -> None:
    """Serve until the end.

    Args:
        settings: With the flags for computing.
        keep_history: Value of --history.
        auth: Value of --auth.
        allow_host: Values of --allow-host.
        allow_origin: Values of --allow-origin.
        trusted_proxy: Values of --trusted-proxy.
        memory_limit: Value of --memory-limit.
        lan: Value of --lan.
        options: Further fields of ServerOptions.

    Raises:
        OptionError: A flag is invalid.
    """
    if keep_history is not None:
        # A history file that the settings name is kept.
        settings = replace(settings, history=keep_history and (settings.history or True))
    if lan:
        options |= _lan_options(options)
    from edgeapp.memory_limit import parse_size
    from edgeapp.server.access.addresses import TrustedProxies
    from edgeapp.server.access.hosts import parse_host_names
    from edgeapp.server.access.origins import parse_origins
    from edgeapp.server.options import ServerOptions, read_logins
    from edgeapp.server.serve import serve

    chosen = ServerOptions(
        logins=read_logins(auth),
        allow_hosts=parse_host_names(allow_host or ()),
        allow_origins=parse_origins(allow_origin or ()),
        proxies=TrustedProxies.parse(trusted_proxy or settings.trusted_proxy.split(",")),
        memory_bytes=parse_size(memory_limit),
        **options,
    )
    if keep_history is None and chosen.open_to_all and not chosen.loopback:
        # All visitors would be one user, and read each other's.
        settings = replace(settings, history=False)
    serve(settings, chosen)


def _lan_options(options: dict[str, Any]) -> dict[str, Any]:
    """What --lan changes: the address, the certificate, and a link to log in with."""
    from edgeapp.console import print_note
    from edgeapp.server.access.addresses import is_loopback
    from edgeapp.server.access.certificate import names_of_this_machine, own_certificate

    changed: dict[str, Any] = {"login_link": not options["open_to_all"]}
    if is_loopback(options["host"]):
        changed["host"] = "0.0.0.0"
    if options["ssl_certfile"] is None and options["ssl_keyfile"] is None:
        own = own_certificate(tls_folder(), names_of_this_machine())
        changed |= {"ssl_certfile": own.certfile, "ssl_keyfile": own.keyfile}
        print_note(
            "browsers warn once of this machine's own certificate, which no authority has signed; "
            f"its SHA-256 is {own.fingerprint}"
        )
    return changed
