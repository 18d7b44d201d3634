"""`serve`: the web server, in one process with one engine; by default for this machine only."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgeapp.console import print_note
from edgeapp.model_pool import ModelPool
from edgeapp.server.options import ServerOptions
from edgeapp.server.transport.connections import Connections, LimitedListener
from edgeapp.settings import Settings, history_file
from pipelines import EdgeError, OptionError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

__all__ = ["serve", "server_config"]

_LOOPBACK_OF_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # listening on all interfaces
_MAX_MESSAGE_BYTES = 4 << 20  # the longest text and its translation, in any script
_BACKLOG = 128  # connections that wait while the application is being made


def serve(settings: Settings, options: ServerOptions) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        OptionError: The address cannot be used.
    """
    import uvicorn

    connections = Connections(proxies=options.proxies)
    listener = _bind(options.host, options.port, connections)
    from edgeapp.server.app import make_app

    pool = ModelPool(settings, listed_only=True)
    app, close = make_app(pool, options, history_file(settings))
    scheme, port = "https" if options.ssl_certfile else "http", listener.getsockname()[1]
    if not options.loopback:
        _warn_of_open_server(options)
    config = server_config(
        app, connections, ssl_certfile=options.ssl_certfile, ssl_keyfile=options.ssl_keyfile
    )
    threading.Thread(target=_warm_up, args=(pool,), daemon=True).start()
    print_note(f"the page is at {_url(scheme, options.host, port)} ; Ctrl-C ends")
    if options.browser:
        # 0.0.0.0 is an address to listen on, not to connect to.
        url = _url(scheme, _LOOPBACK_OF_ANY.get(options.host, options.host), port)
        threading.Timer(1.0, webbrowser.open, (url,)).start()
    try:
        server = uvicorn.Server(config)
        with _hangup_ends(server):
            server.run(sockets=[listener])
    finally:
        close()


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
        loop="asyncio",  # it accepts connections as `LimitedListener` does
        http=http_protocol(connections),
        ws=WebSocketProtocol,
        ws_max_size=_MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # compression would hold up the other connections
        proxy_headers=False,  # the middleware reads them, from the configured proxies only
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=2,
        **options,
    )


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


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


def _warn_of_open_server(options: ServerOptions) -> None:
    if not options.logins:
        print_note(
            "everybody who reaches this machine can use the page: --auth asks for a password"
        )
    if options.ssl_certfile is None:
        print_note(
            "other machines' browsers give a microphone to https pages only: "
            "--ssl-certfile and --ssl-keyfile"
        )


def _warm_up(pool: ModelPool) -> None:
    try:
        pool.warm_up()
    except EdgeError as error:  # the first task that needs the model reports it again
        print_note(str(error))
