"""Who may come in: names and passwords at the door, a cookie afterwards."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import defaultdict, deque
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
_LONGEST_BODY = 4096  # bytes
# Guessing is slow: so many wrong attempts from an address in so many seconds.
_MOST_WRONG, _WITHIN_S = 10, 60.0
_PAUSE_S = 0.5  # after each


class Logins:
    """Who is logged in.

    Args:
        known: user → password. Empty: no login is needed, and every user is "".
    """

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known
        self.on_leave: Callable[[], None] = lambda: None  # called after each logout
        self._people: dict[str, str] = {}  # cookie → user
        self._wrong: dict[str, deque[float]] = defaultdict(deque)

    def person(self, connection: HTTPConnection) -> str | None:
        """Who is logged in there; "" where nobody has to, None for a stranger."""
        if not self._known:
            return ""
        return self._people.get(connection.cookies.get(_COOKIE, ""))

    async def page(self, request: Request) -> Response:
        """GET: the door."""
        if self.person(request) is not None:
            return RedirectResponse("/", 303)
        return _page("")

    async def enter(self, request: Request) -> Response:
        """POST a form with user and password."""
        address = request.client.host if request.client else ""
        wrong = self._wrong[address]
        while wrong and time.monotonic() - wrong[0] > _WITHIN_S:
            wrong.popleft()
        if len(wrong) >= _MOST_WRONG:
            return _page("Too many attempts. Wait for a minute.", status=429)
        form = await _form(request)
        user, password = str(form.get("user", "")), str(form.get("password", ""))
        expected = self._known.get(user, "")
        same = hmac.compare_digest(expected.encode(), password.encode("utf-8", "replace"))
        if not same or not expected:
            wrong.append(time.monotonic())
            await asyncio.sleep(_PAUSE_S)
            return _page("That is not right. Try again.", user, status=403)
        cookie = secrets.token_urlsafe(32)
        self._people[cookie] = user
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(_COOKIE, cookie, httponly=True, samesite="strict", secure=secure)
        return answer

    async def leave(self, request: Request) -> Response:
        """POST: the cookie is worth nothing any more."""
        self._people.pop(request.cookies.get(_COOKIE, ""), None)
        self.on_leave()
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(_COOKIE)
        return answer


async def _form(request: Request) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > _LONGEST_BODY:
        return FormData()
    return await request.form(max_files=0, max_fields=4)


def _page(problem: str, user: str = "", *, status: int = 200) -> Response:
    page = (STATIC / "login.html").read_text("utf-8")
    said = f'<p class="ea-problem" role="alert">{escape(problem)}</p>' if problem else ""
    page = page.replace("<!-- problem -->", said).replace("<!-- user -->", escape(user))
    return HTMLResponse(page, status)
