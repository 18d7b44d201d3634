"""Where a request comes from: forwarded headers are believed from configured proxies only."""

from __future__ import annotations

from typing import Any

import pytest

from edgeapp.server.access.addresses import TrustedProxies, visitor_key
from edgeapp.server.options import ServerOptions
from pipelines.errors import OptionError

PROXIES = TrustedProxies.parse(["10.0.0.0/8", "fd00::1", ""])


def resolved(
    peer: str,
    *forwarded: str,
    proto: str = "",
    kind: str = "http",
    proxies: TrustedProxies = PROXIES,
) -> tuple[str, str]:
    """(address, scheme) of a request with these X-Forwarded-For headers."""
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    headers += [(b"x-forwarded-proto", proto.encode())] if proto else []
    scope: dict[str, Any] = {
        "type": kind, "client": (peer, 9), "scheme": "ws" if kind == "websocket" else "http",
        "headers": headers,
    }  # fmt: skip
    result = proxies.resolve(scope)
    return result["client"][0], result["scheme"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("10.0.0.1", ("198.51.100.7",), "198.51.100.7"),
        # The visitor has invented the left ones; the proxy appended where it was asked from.
        ("10.0.0.1", ("1.1.1.1, 127.0.0.1, 198.51.100.7",), "198.51.100.7"),
        ("10.0.0.1", ("1.1.1.1", "198.51.100.7"), "198.51.100.7"),
        ("10.0.0.1", ("198.51.100.7, 10.9.9.9",), "198.51.100.7"),  # a chain of proxies
        ("10.0.0.1", ("10.3.3.3, 10.9.9.9",), "10.3.3.3"),
        ("10.0.0.1", ("198.51.100.7:4711",), "198.51.100.7"),
        ("10.0.0.1", ("[2001:db8::7]:4711",), "2001:db8::7"),
        ("fd00::1", ("2001:db8::7",), "2001:db8::7"),
        ("::ffff:10.0.0.1", ("198.51.100.7",), "198.51.100.7"),
        ("10.0.0.1", ("198.51.100.7, unknown",), "10.0.0.1"),
        ("10.0.0.1", ("\xff\x1b[31m",), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("127.0.0.1", ("198.51.100.7",), "127.0.0.1"),  # not configured
        ("198.51.100.9", ("10.0.0.1",), "198.51.100.9"),
    ],
)
def test_the_first_untrusted_address_from_the_right(
    peer: str, forwarded: tuple[str, ...], address: str
) -> None:
    assert resolved(peer, *forwarded)[0] == address


def test_by_default_no_proxy_is_believed() -> None:
    for peer in ("127.0.0.1", "::1", "10.0.0.1"):
        told = resolved(peer, "198.51.100.7", proto="https", proxies=TrustedProxies())
        assert told == (peer, "http")


def test_the_scheme_that_the_proxy_was_asked_with() -> None:
    assert resolved("10.0.0.1", proto="https")[1] == "https"
    assert resolved("10.0.0.1", proto="http, https")[1] == "https"
    assert resolved("10.0.0.1", proto="https", kind="websocket")[1] == "wss"
    assert resolved("10.0.0.1", proto="javascript")[1] == "http"
    assert resolved("10.1.1.1", proto="https")[1] == "https"
    assert resolved("11.0.0.1", proto="https")[1] == "http"


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.0/33", "1.2.3", "*"])
def test_other_names_are_no_proxies(text: str) -> None:
    with pytest.raises(OptionError, match="is not an address or a network"):
        TrustedProxies.parse([text])


def test_a_visitor_is_an_address_or_a_subscriber() -> None:
    assert visitor_key("198.51.100.7") == "198.51.100.7"
    assert visitor_key("::ffff:198.51.100.7") == "198.51.100.7"
    assert visitor_key("2001:db8:1:2::3") == visitor_key("2001:db8:1:2:ffff::4%eth0")
    assert visitor_key("2001:db8:1:2::3") != visitor_key("2001:db8:1:3::3")
    assert visitor_key("testclient") == "testclient"


def test_behind_a_proxy_a_server_is_not_for_this_machine_only() -> None:
    """Everybody may come through the proxy: models cannot be changed without a login."""
    proxied = ServerOptions(proxies=PROXIES)
    assert not proxied.loopback
    assert proxied.login_required
    assert not ServerOptions(proxies=PROXIES, open_to_all=True).trusted
    assert ServerOptions(proxies=PROXIES, logins=(("anna", "one"),)).trusted
    assert ServerOptions().trusted
