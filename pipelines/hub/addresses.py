"""The rules for the addresses of downloads: which are allowed, which get the token."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import SplitResult, urljoin, urlsplit

from pipelines.errors import OptionError
from pipelines.hub.names import shown

_LONGEST = 8192  # characters; signed addresses have about 1,500
_TOKEN_OVER_HTTP = "EDGEAPP_TOKEN_OVER_HTTP"  # environment: "1" sends the token in any case
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")  # a name or IPv4 address, or IPv6


class InsecureMirror(UserWarning):
    """HF_ENDPOINT names a mirror on another machine that is reached over plain http."""


def check_endpoint(endpoint: str) -> None:
    """Check the address of the hub, HF_ENDPOINT.

    Raises:
        OptionError: It is not an http or https address.
    """
    try:
        _split(endpoint)
    except ValueError as error:
        raise OptionError(
            f"HF_ENDPOINT is {shown(endpoint)}, {error}; set it to an address like "
            "https://huggingface.co"
        ) from error


def insecure_mirror(endpoint: str) -> str | None:
    """The warning for a hub over plain http, or None if none is needed.

    Plain http lets the network replace the model and read the token, where one is sent. The hashes
    do not help: the list that holds them comes over the same connection. On the loopback interface
    the traffic does not leave the machine, so there is no warning.
    """
    if _is_private(endpoint):
        return None
    token = "can read your token and" if may_send_token(endpoint) else "can"
    without = "" if may_send_token(endpoint) else "; your token is not sent to it"
    return (
        f"the hub {endpoint} is reached over plain http: others on the network {token} "
        f"replace the models{without}; set HF_ENDPOINT to an https address"
    )


def may_send_token(endpoint: str) -> bool:
    """Whether requests to a hub carry the user's token: over https, on this machine, or if the
    environment variable EDGEAPP_TOKEN_OVER_HTTP is 1."""
    return _is_private(endpoint) or os.environ.get(_TOKEN_OVER_HTTP) == "1"


def redirect_target(source: str, location: str) -> str:
    """The absolute address that a redirect leads to.

    https may lead to any other https host, since the server is authenticated and downloads are
    served from storage hosts. Plain http may lead to https, to its own host, or from loopback to
    loopback.

    Args:
        source: The address of the request.
        location: The Location header of its answer.

    Raises:
        ValueError: The redirect must not be followed; the message is the end of a sentence.
    """
    before = _split(source)
    try:
        target = urljoin(source, location)
    except ValueError as error:
        raise ValueError("which is not an address") from error
    after = _split(target)
    loopback = _is_loopback(after.hostname or "")
    if loopback and not _is_loopback(before.hostname or ""):
        raise ValueError("which is this machine itself")
    if after.scheme == "http" and before.scheme == "https":
        raise ValueError("which is plain http")
    if after.scheme == "http" and after.hostname != before.hostname and not loopback:
        raise ValueError("which is another host over plain http")
    return target


def same_origin(first: str, second: str) -> bool:
    """Whether two addresses share scheme, host and port, so that a token may go to both."""
    one, other = _split(first), _split(second)
    return (one.scheme, one.hostname, _port(one)) == (other.scheme, other.hostname, _port(other))


def _split(address: str) -> SplitResult:
    """Raises ValueError for anything but a plain http or https address."""
    if len(address) > _LONGEST:
        raise ValueError(f"which is longer than {_LONGEST} characters")
    if not (address.isascii() and address.isprintable()) or " " in address or "\\" in address:
        raise ValueError("which is not an address")
    try:
        parts = urlsplit(address)
        _port(parts)
    except ValueError as error:
        raise ValueError("which is not an address") from error
    if parts.scheme not in ("http", "https"):
        raise ValueError("which is neither http nor https")
    if not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise ValueError("which has no host")
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _is_private(endpoint: str) -> bool:
    """Whether no other machine can read the traffic to a hub."""
    address = urlsplit(endpoint)
    return address.scheme != "http" or _is_loopback(address.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
