"""Login with user name and password; a random cookie identifies the user afterwards."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, RedirectResponse, Response

from edgeapp.ui import STATIC

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

__all__ = ["Logins"]

_COOKIE = "edgeapp"
_MAX_FORM_BYTES = 4096
# Limits of password guessing: failed and unfinished attempts per client address, within a time.
_MAX_FAILURES, _FAILURE_WINDOW_S = 10, 60.0
_FAILURE_DELAY_S = 0.5  # after each failed attempt


class Logins:
    """The users who are logged in.

    Args:
        passwords: user → password. Empty: no login is needed, and every user is "".

    Attributes:
        on_logout: Called after each logout.
    """

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords
        self.on_logout: Callable[[], None] = lambda: None
        self._users: dict[str, str] = {}  # cookie → user
        # address → times (time.monotonic) of its attempts that did not succeed
        self._attempts: dict[str, list[float]] = {}

    def user_of(self, connection: HTTPConnection) -> str | None:
        """The user of a connection; "" if no login is needed, None if a login is missing."""
        if not self._passwords:
            return ""
        return self._users.get(connection.cookies.get(_COOKIE, ""))

    async def login_page(self, request: Request) -> Response:
        """GET /login."""
        if self.user_of(request) is not None:
            return RedirectResponse("/", 303)
        return _login_page("")

    async def log_in(self, request: Request) -> Response:
        """POST /login: a form with `user` and `password`."""
        address = request.client.host if request.client else ""
        began = time.monotonic()
        self._forget_attempts_before(began - _FAILURE_WINDOW_S)
        if len(self._attempts.get(address, ())) >= _MAX_FAILURES:
            return _login_page("Too many attempts. Wait for a minute.", status=429)
        # Counted before the first await, so that parallel attempts are limited too.
        self._attempts.setdefault(address, []).append(began)
        form = await _read_form(request)
        user, password = str(form.get("user", "")), str(form.get("password", ""))
        expected = self._passwords.get(user, "")
        equal = hmac.compare_digest(expected.encode(), password.encode("utf-8", "replace"))
        if not equal or not expected:
            await asyncio.sleep(_FAILURE_DELAY_S)
            return _login_page("Wrong name or password. Try again.", user, status=403)
        self._forget_attempt(address, began)
        cookie = secrets.token_urlsafe(32)
        self._users[cookie] = user
        response = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        response.set_cookie(_COOKIE, cookie, httponly=True, samesite="strict", secure=secure)
        return response

    async def log_out(self, request: Request) -> Response:
        """POST /logout: the cookie becomes invalid."""
        self._users.pop(request.cookies.get(_COOKIE, ""), None)
        self.on_logout()
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_COOKIE)
        return response

    def _forget_attempts_before(self, oldest: float) -> None:
        recent = {
            address: [began for began in times if began >= oldest]
            for address, times in self._attempts.items()
        }
        self._attempts = {address: times for address, times in recent.items() if times}

    def _forget_attempt(self, address: str, began: float) -> None:
        times = self._attempts.get(address, [])
        if began in times:  # else it took longer than the window
            times.remove(began)
        if not times:
            self._attempts.pop(address, None)


async def _read_form(request: Request) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > _MAX_FORM_BYTES:
        return FormData()
    return await request.form(max_files=0, max_fields=4)


def _login_page(problem: str, user: str = "", *, status: int = 200) -> Response:
    page = (STATIC / "login.html").read_text("utf-8")
    alert = f'<p class="ea-problem" role="alert">{escape(problem)}</p>' if problem else ""
    page = page.replace("<!-- problem -->", alert).replace("<!-- user -->", escape(user))
    return HTMLResponse(page, status)
