"""`serve`: the web server, in one process with one engine; by default for this machine only."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from edgeapp.console import print_note
from edgeapp.exit_codes import print_error
from edgeapp.memory_limit import MemoryLimit
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.addresses import reachable, url_host
from edgeapp.server.access.login_links import LOGIN_LINK_S
from edgeapp.server.access.tokens import TokenFile
from edgeapp.server.options import ServerOptions
from edgeapp.server.transport.connections import Connections, LimitedListener
from edgeapp.settings import Settings, history_file, tokens_file
from pipelines import EdgeError, OptionError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from edgeapp.server.routes import AppRoutes

__all__ = ["draining_server", "serve", "server_config"]

OWNER = ""  # the user whose history `edgeapp ui` keeps without logins
_MAX_MESSAGE_BYTES = 4 << 20  # the longest text and its translation, in any script
_DRAIN_S = 30  # at the end, for requests that were accepted
_BACKLOG = 128  # connections that wait while the application is being made


def serve(settings: Settings, options: ServerOptions) -> None:
    """Serve the page and the interfaces for programs until Ctrl-C.

    At the end, requests that were accepted are finished, for up to half a minute.

    Raises:
        OptionError: The address cannot be used, or other machines could use the server without
            a login or a token.
    """
    tokens = TokenFile(tokens_file())
    _check_login(options, tokens)
    connections = Connections(proxies=options.proxies)
    listener = _bind(options.host, options.port, connections)
    from edgeapp.server.app import make_app

    limit = MemoryLimit(options.memory_bytes)
    pool = ModelPool(settings, listed_only=True, memory_limit=limit)
    app, routes = make_app(pool, options, history_file(settings), tokens)
    scheme, port = "https" if options.ssl_certfile else "http", listener.getsockname()[1]
    if not options.loopback:
        _warn_of_open_server(options)
    config = server_config(
        app, connections, ssl_certfile=options.ssl_certfile, ssl_keyfile=options.ssl_keyfile
    )
    threading.Thread(target=_warm_up, args=(pool,), daemon=True).start()
    here, elsewhere = reachable(options.host)
    url = _url(scheme, here, port)
    print_note(f"the {'page' if options.page else 'server'} is at {url} ; Ctrl-C ends")
    if elsewhere is not None and elsewhere != here:
        print_note(f"other devices reach it at {_url(scheme, elsewhere, port)}")
    if options.page:
        print_note(f"programs use {url}v1 (OpenAI) and {url} (LibreTranslate)")
    if options.login_link:
        _print_login_link(_url(scheme, elsewhere or here, port), routes, options)
    if options.browser:
        opened = url
        if options.login_link and not options.logins:
            opened = f"{url}enter/{routes.make_login_link(OWNER)}"
        threading.Timer(1.0, webbrowser.open, (opened,)).start()
    try:
        server = draining_server(config, routes.service.queue.close)
        # A signal is how a server ends: uvicorn raises it again when it has.
        with _hangup_ends(server), suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
        print_note("the server has ended")
    finally:
        routes.close()


def draining_server(config: uvicorn.Config, drain: Callable[[], None]) -> uvicorn.Server:
    """A server that calls `drain` when a signal asks it to end."""
    import uvicorn

    class DrainingServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            drain()
            super().handle_exit(sig, frame)

    return DrainingServer(config)


@contextmanager
def _hangup_ends(server: uvicorn.Server) -> Iterator[None]:
    """SIGHUP ends the server as SIGTERM does, which uvicorn handles itself."""
    number = getattr(signal, "SIGHUP", None)  # Windows has none
    if number is None or signal.getsignal(number) == signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, server.handle_exit)
    try:
        yield
    finally:
        signal.signal(number, before)


def server_config(app: ASGIApp, connections: Connections, **options: Any) -> uvicorn.Config:
    """The configuration of uvicorn, with our limits.

    Args:
        app: The application.
        connections: Of the listening socket.
        options: Further options of uvicorn.
    """
    import uvicorn

    from edgeapp.server.transport.protocols import WebSocketProtocol, http_protocol

    return uvicorn.Config(
        app,
        # Warnings are about invalid requests: whoever sends them would fill the log.
        log_level="error",
        access_log=False,  # its lines would have query strings, and those keys
        loop="asyncio",  # it accepts connections as `LimitedListener` does
        http=http_protocol(connections),
        ws=WebSocketProtocol,
        ws_max_size=_MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # compression would hold up the other connections
        proxy_headers=False,  # the middleware reads them, from the configured proxies only
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_DRAIN_S,
        **options,
    )


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{url_host(host)}:{port}/"


def _print_login_link(url: str, routes: AppRoutes, options: ServerOptions) -> None:
    """A QR code of the page's address; where there are no passwords, one that logs in."""
    import segno

    if options.logins:
        print_note("scan this to open the page on another device")
    else:
        url = f"{url}enter/{routes.make_login_link(OWNER)}"
        minutes = round(LOGIN_LINK_S / 60)
        print_note(f"scan this to log another device of yours in, or open {url}")
        print_note(f"the link works once, within {minutes} minutes; the page's Share makes more")
    segno.make(url, error="l").terminal(out=sys.stderr, border=2, compact=True)
    sys.stderr.flush()


def _bind(host: str, port: int, connections: Connections) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = LimitedListener(connections, family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise OptionError(
            f"{host}:{port} cannot be used ({error.strerror}); --port chooses another"
        ) from error
    return listener


def _check_login(options: ServerOptions, tokens: TokenFile) -> None:
    """Raise OptionError where a login is required that is possible for nobody."""
    possible = options.logins or options.login_link or tokens.tokens
    if options.login_required and not possible:
        raise OptionError(
            f"other machines reach {options.host}, so that a login or a token is required: --auth "
            "asks for a password, `edgeapp tokens new NAME` makes a token, --lan prints a link, "
            "--no-auth lets everybody in"
        )


def _warn_of_open_server(options: ServerOptions) -> None:
    if options.open_to_all:
        print_note(
            "WARNING: --no-auth: everybody who reaches this machine can use its models; "
            "--auth asks for a password, `edgeapp tokens` makes tokens"
        )
    if options.ssl_certfile is None:
        print_note(
            "other machines' browsers give a microphone to https pages only, and passwords and "
            "tokens are readable on the way: --lan makes a certificate, --ssl-certfile names one"
        )


def _warm_up(pool: ModelPool) -> None:
    try:
        pool.warm_up()
    except EdgeError as error:  # the first task that needs the model reports it again
        print_error(error, None, debug=False)
