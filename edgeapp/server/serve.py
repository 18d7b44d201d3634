"""The server of the page: one process, one engine, this machine only unless told otherwise."""

from __future__ import annotations

import re
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from edgeapp.console import print_note
from edgeapp.server.shared_models import SharedModelPool
from edgeapp.settings import Settings, history_file
from pipelines import EdgeError, OptionError

__all__ = ["ServerOptions", "is_loopback", "read_logins", "serve"]

_SHORT = re.compile(r"127(\.[0-9]{1,8}){1,2}")  # 127.1 is 127.0.0.1
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class ServerOptions:
    """How the page is served.

    logins: (user, password) pairs, none for an open page. sessions: at most so many run at once.
    upload_mb, minutes: the longest recording taken. browser: open the page there.
    """

    host: str = "127.0.0.1"
    port: int = 7860
    logins: tuple[tuple[str, str], ...] = ()
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    sessions: int = 4
    upload_mb: int = 512
    minutes: float = 180.0
    browser: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise OptionError(f"--port must be 0 to 65535, not {self.port}")
        if self.sessions < 1 or self.upload_mb < 1 or self.minutes <= 0:
            raise OptionError("--max-sessions, --max-upload-mb and --max-minutes must be above 0")
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise OptionError("--ssl-certfile and --ssl-keyfile go together")
        for path in (self.ssl_certfile, self.ssl_keyfile):
            if path is not None and not path.is_file():
                raise OptionError(f"{path} is no file")

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the page."""
        return is_loopback(self.host)

    @property
    def trusted(self) -> bool:
        """Whether whoever reaches the page may change what is on this machine."""
        return self.loopback or bool(self.logins)


def is_loopback(host: str) -> bool:
    """Whether a host, given as an address or a name, is reached from this machine only.

    Names other than localhost are not looked up: 127.example.com may be any machine.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or _SHORT.fullmatch(host) is not None


def read_logins(text: str | None) -> tuple[tuple[str, str], ...]:
    """ "user:password", or a file with one such line for each user. Raises OptionError."""
    if text is None:
        return ()
    lines = [text]
    with suppress(OSError):  # a password may be too long to be a path
        if Path(text).is_file():
            lines = Path(text).read_text("utf-8").splitlines()
    pairs = [line.strip().partition(":") for line in lines if line.strip()]
    if not pairs or not all(user and colon and password for user, colon, password in pairs):
        raise OptionError("--auth takes user:password, or a file with such lines")
    return tuple((user, password) for user, _, password in pairs)


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
