"""The Host header: the names under which the server answers."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

from edgeapp.server.access.addresses import is_loopback
from pipelines import OptionError

__all__ = ["HostNames", "machine_names", "parse_host_names"]

_NAME = r"[\w.-]{1,253}"
_HOST = re.compile(rf"(\[[0-9a-f:.]{{2,45}}\]|{_NAME})(:[0-9]{{1,5}})?", re.ASCII | re.IGNORECASE)


class HostNames:
    """Decides whether a request names a host that this server has.

    A website can make its own name resolve to this machine (DNS rebinding), so that its page passes
    for the server's own. Where a login is required, such a page has no cookie of the server. Where
    none is, the Host header must be one that no website can have.

    Args:
        loopback: Only this machine reaches the server: its names are those of the loopback device.
        login_required: Whether a login or a token is required.
        allowed: Further names, in lower case.
    """

    def __init__(self, *, loopback: bool, login_required: bool, allowed: Iterable[str]) -> None:
        self._loopback = loopback
        self._any_name = login_required and not loopback
        self._names = frozenset(allowed) | frozenset(() if loopback else machine_names())

    def refusal(self, host: str) -> str:
        """Return why a Host header is refused, or "" if it is not."""
        if not host and self._any_name:
            return ""  # HTTP/1.0, as health checks of load balancers use it
        parts = _HOST.fullmatch(host)
        if parts is None:
            return f"the Host header {host[:100]!r} is not a host name with an optional port"
        name = parts[1].strip("[]").lower()
        if self._any_name or name in self._names or is_loopback(name):
            return ""
        if not self._loopback and _is_address(name):
            return ""  # no website's name: rebinding needs one
        return (
            f"{host[:100]} is not this machine's own name; if it leads here, start the server "
            f"with --allow-host {name[:100]}"
        )


def machine_names() -> tuple[str, ...]:
    """Return the names of this machine in its network, in lower case."""
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return tuple(dict.fromkeys((name, short, f"{short}.local")))


def parse_host_names(texts: Iterable[str]) -> frozenset[str]:
    """Read the values of --allow-host.

    Raises:
        OptionError: One of them is not a name.
    """
    names = set()
    for text in texts:
        name = text.strip().lower()
        if not (_is_address(name) or re.fullmatch(_NAME, name, re.ASCII)):
            raise OptionError(
                "--allow-host takes a name without a port, such as host.docker.internal, "
                f"not {text!r}"
            )
        names.add(name)
    return frozenset(names)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
