"""Addresses of clients: which proxy is believed, and what counts as one visitor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from pipelines import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope

__all__ = ["TrustedProxies", "is_loopback", "visitor_key"]

_SCHEMES = {"http": "ws", "https": "wss"}  # of a request → of a WebSocket
_SHORT_LOOPBACK = re.compile(r"127(\.[0-9]{1,8}){1,2}")  # 127.1 is 127.0.0.1
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
