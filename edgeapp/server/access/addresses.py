"""Addresses of clients: which proxy is believed, and what counts as one visitor."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from pipelines import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope

__all__ = ["TrustedProxies", "is_loopback", "lan_address", "reachable", "url_host", "visitor_key"]

_SCHEMES = {"http": "ws", "https": "wss"}  # of a request → of a WebSocket
_SHORT_LOOPBACK = re.compile(r"127(\.[0-9]{1,8}){1,2}")  # 127.1 is 127.0.0.1
_EVERY_INTERFACE = ("0.0.0.0", "::", "")  # addresses to listen on, not to connect to
# Of documentation, and never routed: an address is asked for, and nothing is sent.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_SUBSCRIBER_BITS = 64  # an IPv6 subscriber has at least such a network


@dataclass(frozen=True)
class TrustedProxies:
    """The reverse proxies whose X-Forwarded-For and X-Forwarded-Proto headers are believed.

    Attributes:
        networks: Their addresses. Empty: no header is believed.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TrustedProxies:
        """Read addresses and networks, such as 10.0.0.1 and fd00::/8. Empty texts are left out.

        Raises:
            OptionError: One of them is neither.
        """
        networks = []
        for text in filter(str.strip, texts):
            try:
                networks.append(ip_network(text.strip(), strict=False))
            except ValueError:
                raise OptionError(
                    f"trusted proxy {text!r} is not an address or a network, "
                    "such as 10.0.0.1 or 10.0.0.0/8"
                ) from None
        return cls(tuple(networks))

    def __contains__(self, address: object) -> bool:
        parsed = _parse(str(address))
        return parsed is not None and any(parsed in network for network in self.networks)

    def resolve(self, scope: Scope) -> Scope:
        """The scope of a request with the address and the scheme that the visitor used.

        X-Forwarded-For is read from the right: each proxy appends the address that it was asked
        from, and what stands left of the first untrusted address may be invented.
        """
        peer = scope.get("client")
        if not self.networks or not peer or peer[0] not in self:
            return scope
        address, scheme = peer[0], scope["scheme"]
        for forwarded in reversed(_values(scope, b"x-forwarded-for")):
            if (parsed := _parse(forwarded)) is None:
                break  # not an address: the proxy that sent it is the last one known
            address = str(parsed)
            if address not in self:
                break
        protocol = _values(scope, b"x-forwarded-proto")[-1:]
        if protocol and protocol[0].lower() in _SCHEMES:
            scheme = protocol[0].lower()
            scheme = _SCHEMES[scheme] if scope["type"] == "websocket" else scheme
        return {**scope, "client": (address, 0), "scheme": scheme}


def visitor_key(address: str) -> str:
    """What limits are counted by: an IPv4 address, or the network of an IPv6 subscriber."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _SUBSCRIBER_BITS), strict=False))
    return address if parsed is None else str(parsed)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """An address, possibly with a port or a zone; an IPv4 address that IPv6 wraps is unwrapped."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _values(scope: Scope, name: bytes) -> list[str]:
    """The values of a header that is a list; it may be sent several times."""
    lines = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return [value.strip() for value in ",".join(lines).split(",") if value.strip()]


def is_loopback(host: str) -> bool:
    """Whether an address or a name is reachable from this machine only.

    Names other than localhost are not resolved: 127.example.com may be any machine.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or _SHORT_LOOPBACK.fullmatch(host) is not None


def lan_address(family: socket.AddressFamily = socket.AF_INET) -> str | None:
    """This machine's address in its network; None where there is no network."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE[family], 9))  # of a datagram socket: no packet is sent
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if is_loopback(address) else address


def reachable(host: str) -> tuple[str, str | None]:
    """Addresses of a server that listens on `host`: (on this machine, from other machines)."""
    if is_loopback(host):
        return host, None
    if host not in _EVERY_INTERFACE:
        return host, host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return ("::1" if ":" in host else "127.0.0.1"), lan_address(family)


def url_host(host: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
