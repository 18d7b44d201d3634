"""Options of the server: address, logins, TLS files, limits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgeapp.server.access.addresses import TrustedProxies, is_loopback
from edgeapp.server.access.hosts import HostNames
from pipelines import OptionError

__all__ = ["ServerOptions", "read_logins"]


@dataclass(frozen=True)
class ServerOptions:
    """How the page is served.

    Attributes:
        host: The address to listen on.
        port: The TCP port, 0 for any free one.
        logins: (user, password) pairs.
        open_to_all: Off loopback, too, neither a login nor a token is needed.
        allow_hosts: Further names of this machine, as in a Host header, in lower case.
        allow_origins: Origins whose pages may use the routes of programs, in lower case.
        ssl_certfile: The TLS certificate, for https.
        ssl_keyfile: The key of the certificate.
        sessions: The number of sessions that may have running tasks at the same time.
        upload_mb: The largest recording that is accepted, in MiB.
        minutes: The longest recording that is accepted.
        browser: Open the page in the browser.
        page: Serve the page beside the programming interfaces.
        proxies: Reverse proxies that say where a request comes from.
        memory_bytes: Limit of the process's memory; None: no limit.
        login_link: Print a link with a QR code that logs the owner in once.

    Raises:
        OptionError: A value is out of range, or a file is missing.
    """

    host: str = "127.0.0.1"
    port: int = 7860
    logins: tuple[tuple[str, str], ...] = ()
    open_to_all: bool = False
    allow_hosts: frozenset[str] = frozenset()
    allow_origins: frozenset[str] = frozenset()
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    sessions: int = 4
    upload_mb: int = 512
    minutes: float = 180.0
    browser: bool = True
    page: bool = True
    proxies: TrustedProxies = TrustedProxies()
    memory_bytes: int | None = None
    login_link: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise OptionError(f"--port must be 0 to 65535, not {self.port}")
        if self.sessions < 1 or self.upload_mb < 1 or self.minutes <= 0:
            raise OptionError("--max-sessions, --max-upload-mb and --max-minutes must be above 0")
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise OptionError("--ssl-certfile and --ssl-keyfile go together")
        if self.open_to_all and self.logins:
            raise OptionError("--auth and --no-auth exclude each other")
        for path in (self.ssl_certfile, self.ssl_keyfile):
            if path is not None and not path.is_file():
                raise OptionError(f"{path} is not a file")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the page: not through a proxy either."""
        return is_loopback(self.host) and not self.proxies.networks

    @property
    def host_names(self) -> HostNames:
        """The names under which requests reach this machine."""
        return HostNames(
            loopback=self.loopback, login_required=self.login_required, allowed=self.allow_hosts
        )

    @property
    def login_required(self) -> bool:
        """Whether a login or a token is needed."""
        return bool(self.logins) or not (self.loopback or self.open_to_all)

    @property
    def shared(self) -> bool:
        """Whether there may be several people, of whom one must not take all places."""
        return not self.loopback or bool(self.logins)

    @property
    def sessions_per_person(self) -> int:
        """The number of sessions of one person that may have running tasks."""
        return self.sessions - 1 if self.shared and self.sessions > 2 else self.sessions

    @property
    def uploads_per_person(self) -> int:
        """The number of recordings of one person that may arrive or wait at the same time."""
        return max(1, self.sessions // 2) if self.shared else self.sessions

    @property
    def trusted(self) -> bool:
        """Whether users of the page may change the models on this machine."""
        return self.loopback or self.login_required


def read_logins(text: str | None) -> tuple[tuple[str, str], ...]:
    """Parse the --auth option.

    Args:
        text: "user:password", or a file with one such line for each user. None: no logins.

    Returns:
        (user, password) pairs.

    Raises:
        OptionError: A user or a password is missing.
    """
    if text is None:
        return ()
    lines = [text]
    with suppress(OSError):  # a password may be too long for a path
        if Path(text).is_file():
            lines = Path(text).read_text("utf-8").splitlines()
    pairs = [line.strip().partition(":") for line in lines if line.strip()]
    if not pairs or not all(user and colon and password for user, colon, password in pairs):
        raise OptionError("--auth takes user:password, or a file with such lines")
    if any(user.startswith("token ") for user, _, _ in pairs):
        raise OptionError("--auth: a user name cannot begin with 'token ', as users of tokens do")
    return tuple((user, password) for user, _, password in pairs)
