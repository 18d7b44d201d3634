"""Logins: guessing is limited for each address and for all, and cookies expire."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edgeapp.server.access import auth, login_attempts
from edgeapp.server.access.addresses import TrustedProxies
from edgeapp.server.access.auth import Logins
from edgeapp.server.access.login_attempts import LoginAttempts
from tests.edgeapp.server import attacks

LOGINS = (("anna", "one two"), ("ben", "three"))


class Clock:
    """time.monotonic, as the tests set it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    # Not time.monotonic itself: event loops in other threads, servers of other tests, read it.
    for module in (auth, login_attempts):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    return clock


def visitor(cookie: str = "", address: str = "198.51.100.7") -> Any:
    from starlette.requests import HTTPConnection

    headers = [(b"cookie", f"edgeapp={cookie}".encode())]
    return HTTPConnection({"type": "http", "headers": headers, "client": (address, 9)})


def test_a_login_ends_that_is_not_used(clock: Clock) -> None:
    logins = Logins(dict(LOGINS))
    annas = visitor(logins._begin_login("anna"))
    for _ in range(20):  # in use
        clock.now += auth._IDLE_S - 1
        if clock.now > 1000 + auth._LONGEST_S:
            break
        assert logins.use(annas) == "anna"
    annas = visitor(logins._begin_login("anna"))
    clock.now += auth._IDLE_S - 1
    assert logins.user_of(annas) == "anna", "the server's own check is no use"
    clock.now += 2
    assert logins.user_of(annas) is None
    assert logins.use(annas) is None, "it does not begin again"


def test_a_login_ends_in_any_case(clock: Clock) -> None:
    logins = Logins(dict(LOGINS))
    annas, began = visitor(logins._begin_login("anna")), clock.now
    while clock.now + 3600 < began + auth._LONGEST_S:
        clock.now += 3600
        assert logins.use(annas) == "anna"
    clock.now += 3601
    assert logins.use(annas) is None
    bens = visitor(logins._begin_login("ben"))
    assert list(logins._logins) == [bens.cookies["edgeapp"]], "ended logins are forgotten"


def test_the_logins_of_a_user_are_limited() -> None:
    logins = Logins(dict(LOGINS))
    first, bens = logins._begin_login("anna"), logins._begin_login("ben")
    for _ in range(auth._MAX_LOGINS):
        last = logins._begin_login("anna")
    assert logins.user_of(visitor(first)) is None
    assert logins.user_of(visitor(last)) == "anna"
    assert logins.user_of(visitor(bens)) == "ben"


def test_an_address_and_all_addresses_have_limits(clock: Clock) -> None:
    attempts = LoginAttempts()
    known = attempts.begin("192.0.2.1")
    assert known is not None
    attempts.succeed("192.0.2.1", known)
    assert [attempts.begin("a") is not None for _ in range(11)] == [True] * 10 + [False]
    begun = sum(attempts.begin(f"b{number}") is not None for number in range(500))
    assert begun == login_attempts._MAX_IN_ALL - 10
    assert attempts.begin("192.0.2.1") is not None, "whoever has logged in before is not kept out"
    clock.now += login_attempts._WINDOW_S + 1
    assert attempts.begin("a") is not None
    assert attempts.begin("c") is not None


def test_invented_addresses_do_not_help_guessing(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "_FAILURE_DELAY_S", 0)
    url = thread_server(logins=LOGINS)
    statuses = attacks.login_flood(url, forwarded_for=lambda number: f"203.0.113.{number}")
    assert statuses == [403] * 10 + [429] * 20


def test_a_proxy_tells_who_guesses(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One visitor's guesses do not keep another one out who comes through the same proxy."""
    monkeypatch.setattr(auth, "_FAILURE_DELAY_S", 0)
    url = thread_server(logins=LOGINS, proxies=TrustedProxies.parse([attacks.ATTACKER]))
    guesses = attacks.login_flood(url, forwarded_for=lambda number: f"{number}.0.0.1, 192.0.2.66")
    assert guesses == [403] * 10 + [429] * 20
    others = attacks.login_flood(url, count=1, forwarded_for=lambda number: "192.0.2.67")
    assert others == [403]


def test_a_login_through_a_proxy_with_tls_has_a_secure_cookie(
    thread_server: Callable[..., str],
) -> None:
    url = thread_server(logins=LOGINS, proxies=TrustedProxies.parse([attacks.VISITOR]))
    form = {"content-type": "application/x-www-form-urlencoded", "x-forwarded-proto": "https"}
    response, _ = attacks.request(
        url, "POST", "/login", body="user=ben&password=three", headers=form
    )
    cookie = response.headers["set-cookie"]
    assert response.status == 303
    assert "Secure" in cookie
    assert f"Max-Age={7 * 24 * 3600}" in cookie


def test_an_open_tab_is_closed_when_its_login_expires(
    thread_server: Callable[..., str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    from websockets.exceptions import ConnectionClosed

    monkeypatch.setattr("edgeapp.server.socket._LOGIN_CHECKED_S", 0.1)
    url = thread_server(logins=LOGINS)
    form = {"content-type": "application/x-www-form-urlencoded"}
    response, _ = attacks.request(
        url, "POST", "/login", body="user=ben&password=three", headers=form
    )
    cookie = {"cookie": response.headers["set-cookie"].partition(";")[0]}
    with attacks.open_tab(url, headers=cookie) as tab:
        clock.now += auth._IDLE_S - 1
        assert "models" in attacks.ask(tab, {"type": "models"}), "it is in use"
        clock.now += auth._IDLE_S + 1
        with pytest.raises(ConnectionClosed):  # noqa: PT012
            while True:
                tab.recv(60)
        assert tab.close_code == 4403
    assert attacks.request(url, "GET", "/edgeapp/user", headers=cookie)[0].status == 401
