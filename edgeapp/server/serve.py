"""The server of the page: one process, one engine, this machine only unless told otherwise."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from contextlib import suppress
from typing import Any

from edgeapp.console import print_note
from edgeapp.server.options import ServerOptions, is_loopback
from edgeapp.server.shared_models import SharedModelPool
from edgeapp.settings import Settings, history_file
from pipelines import EdgeError, OptionError

__all__ = ["serve"]

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def serve(settings: Settings, options: ServerOptions) -> None:
    """Until Ctrl-C. Raises OptionError when the address cannot be used."""
    import uvicorn

    listener = _bind(options.host, options.port)
    from edgeapp.server.app import make_app

    pool = SharedModelPool(settings)
    app, close = make_app(pool, options, history_file(settings))
    scheme = "https" if options.ssl_certfile else "http"
    place = f":{listener.getsockname()[1]}/"
    url = f"{scheme}://{_in_address(options.host)}{place}"
    if not is_loopback(options.host):
        _warn_open(options)
    config = uvicorn.Config(
        app,
        log_level="warning",
        ssl_certfile=options.ssl_certfile,
        ssl_keyfile=options.ssl_keyfile,
        ws=_websocket_protocol(),
        ws_max_size=4 << 20,  # the longest text and its translation, in any script
        timeout_graceful_shutdown=2,
    )
    threading.Thread(target=_warm, args=(pool,), daemon=True).start()
    print_note(f"the page is at {url} ; Ctrl-C ends")
    if options.browser:
        # "Everywhere" is nowhere to go to.
        near = _EVERYWHERE.get(options.host, options.host)
        address = f"{scheme}://{_in_address(near)}{place}"
        threading.Timer(1.0, webbrowser.open, (address,)).start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        close()


def _websocket_protocol() -> type[asyncio.Protocol]:
    """uvicorn's WebSocket protocol, with a shutdown that tolerates a browser that is closing.

    At its shutdown uvicorn closes every connection. It raises InvalidState for a connection whose
    close frame has arrived but whose TLS is still open, which would end the server with a
    traceback.
    """
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    from websockets.exceptions import InvalidState

    class WebSocketProtocol(WebSocketsSansIOProtocol):
        def shutdown(self) -> None:
            with suppress(InvalidState):
                super().shutdown()
            self.transport.close()

    return WebSocketProtocol


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # who comes before the models are there waits
    except OSError as error:
        listener.close()
        raise OptionError(
            f"{host}:{port} cannot be used ({error.strerror}); --port chooses another"
        ) from error
    return listener


def _warn_open(options: ServerOptions) -> None:
    if not options.logins:
        print_note(
            "everybody who reaches this machine can use the page: --auth asks for a password"
        )
    if options.ssl_certfile is None:
        print_note(
            "other machines' browsers give a microphone to https pages only: "
            "--ssl-certfile and --ssl-keyfile"
        )


def _warm(pool: SharedModelPool) -> None:
    try:
        pool.warm()
    except EdgeError as error:  # it will be said again to whoever needs the model
        print_note(str(error))
