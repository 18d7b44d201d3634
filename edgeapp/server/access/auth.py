"""Who sends a request: a login with a cookie in the browser, or the token of a program."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from edgeapp.server.access.addresses import visitor_key
from edgeapp.server.access.login_attempts import LoginAttempts
from edgeapp.server.access.login_links import LoginLinks
from edgeapp.server.access.tokens import TokenFile
from edgeapp.ui import STATIC
from pipelines import InputError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

__all__ = ["NEEDS_TOKEN", "Logins", "TooManyAttempts", "bearer_token", "chosen_subprotocol"]

# In the scope of a request: true if it needs a token whatever the server's options say.
NEEDS_TOKEN = "edgeapp.needs_token"

_COOKIE = "edgeapp"
_TOKEN_USER = "token "  # before the token's name; no user with a password has such a name
_KEY_PROTOCOL = "openai-insecure-api-key."
_MAX_FORM_BYTES = 4096
_FAILURE_DELAY_S = 0.5  # after each failed attempt
_IDLE_S = 12 * 3600.0  # a login ends that was not used for so long
_LONGEST_S = 7 * 24 * 3600.0  # a login ends in any case
_LINK_ENDED = "This link was used already, or is too old. Ask for a new one."
_MAX_LOGINS = 50  # of one user at the same time; the oldest ends


@dataclass
class _Login:
    """began, used: when it began and when it was last used, by time.monotonic()."""

    user: str
    began: float
    used: float

    def valid(self, now: float) -> bool:
        return now - self.used < _IDLE_S and now - self.began < _LONGEST_S


class TooManyAttempts(Exception):
    """Too many wrong tokens came from this address."""


class Logins:
    """The users who are logged in, and the programs that have a token.

    Args:
        passwords: user → password.
        tokens: Of programs. On the login page a token is a password, with its name as the user.
        required: Whether a login or a token is needed. None: if there are passwords. If it is not
            needed, the user of a request without one is "".

    Attributes:
        links: Links that log a browser in once.
        on_logout: Called after each logout.
    """

    def __init__(
        self,
        passwords: dict[str, str],
        tokens: TokenFile | None = None,
        *,
        required: bool | None = None,
    ) -> None:
        self._passwords, self._tokens = passwords, tokens
        self._required = bool(passwords) if required is None else required
        self.links = LoginLinks()
        self.on_logout: Callable[[], None] = lambda: None
        self._logins: dict[str, _Login] = {}  # by cookie, in the order of their beginnings
        self._attempts = LoginAttempts()
        self._token_attempts = LoginAttempts()  # apart: wrong tokens lock no login page

    def user_of(self, connection: HTTPConnection) -> str | None:
        """The user of a connection; "" if no login is needed, None if a login is missing."""
        if (user := self.user_of_token(bearer_token(connection))) is not None:
            return user
        login = self._logins.get(connection.cookies.get(_COOKIE, ""))
        if login is not None and login.valid(time.monotonic()) and self._may_come_in(login.user):
            return login.user
        return None if self.required_of(connection) else ""

    def required_of(self, connection: HTTPConnection) -> bool:
        """Return whether a request needs a login or a token."""
        return self._required or bool(connection.scope.get(NEEDS_TOKEN))

    def use(self, connection: HTTPConnection) -> str | None:
        """As `user_of`, for something that the user does: the login does not count as idle.

        Raises:
            TooManyAttempts: The token is wrong, and many from this address were.
        """
        user = self.user_of(connection)
        if user is None and bearer_token(connection):
            self.count_wrong_token(connection)
        login = self._logins.get(connection.cookies.get(_COOKIE, ""))
        if login is not None and login.user == user:
            login.used = time.monotonic()
        return user

    def user_of_token(self, secret: str) -> str | None:
        """The user of a program with this token; None: there is none, or the file is damaged."""
        name = None
        if self._tokens is not None and secret:
            with suppress(InputError):
                name = self._tokens.name_of(secret)
        return None if name is None else _TOKEN_USER + name

    @property
    def has_tokens(self) -> bool:
        """Whether there is a token of a program."""
        with suppress(InputError):  # the file is damaged
            return self._tokens is not None and bool(self._tokens.tokens)
        return False

    def count_wrong_token(self, connection: HTTPConnection) -> None:
        """Note that a wrong token came from an address, if the server requires a login or a token.

        Raises:
            TooManyAttempts: Many did. Right tokens from the same address are still accepted.
        """
        if self._required and self._token_attempts.begin(_address(connection)) is None:
            raise TooManyAttempts

    def person_of(self, connection: HTTPConnection) -> str:
        """Whom limits apply to: a user, or an address where no login is needed."""
        user = self.user_of(connection)
        return f"user {user}" if user else _address(connection)

    async def login_page(self, request: Request) -> Response:
        """GET /login."""
        if self.user_of(request) is not None:
            return RedirectResponse("/", 303)
        return _login_page("")

    async def log_in(self, request: Request) -> Response:
        """POST /login: a form with `user` and `password`; from gradio_client with `username`."""
        address = _address(request)
        # Counted before the first await, so that parallel attempts are limited too.
        attempt = self._attempts.begin(address)
        if attempt is None:
            return _login_page("Too many attempts. Wait for a minute.", status=429)
        form = await _read_form(request)
        by_program = "username" in form
        user = str(form.get("username" if by_program else "user", ""))
        password = str(form.get("password", ""))
        if (name := self._user_with_password(user, password)) is None:
            await asyncio.sleep(_FAILURE_DELAY_S)
            if by_program:
                return JSONResponse({"error": "wrong name or password"}, 401)
            return _login_page("Wrong name or password. Try again.", user, status=403)
        self._attempts.succeed(address, attempt)
        return self._welcome(name, request, JSONResponse({"success": True}) if by_program else None)

    async def link_page(self, request: Request) -> Response:
        """GET /enter/SECRET: a button, since a preview of the address must not use it up."""
        if not self.links.valid(request.path_params["secret"]):
            return _login_page(_LINK_ENDED, status=410)
        return HTMLResponse((STATIC / "enter.html").read_text("utf-8"))

    async def use_link(self, request: Request) -> Response:
        """POST /enter/SECRET: log in, once."""
        user = self.links.take(request.path_params["secret"])
        if user is None:
            await asyncio.sleep(_FAILURE_DELAY_S)
            return _login_page(_LINK_ENDED, status=410)
        return self._welcome(user, request)

    async def log_out(self, request: Request) -> Response:
        """POST /logout: the cookie becomes invalid."""
        self._logins.pop(request.cookies.get(_COOKIE, ""), None)
        self.on_logout()
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_COOKIE)
        return response

    def _welcome(self, user: str, request: Request, response: Response | None = None) -> Response:
        """Begin a login and lead to the page, or give another response."""
        response = response or RedirectResponse("/", 303)
        response.set_cookie(
            _COOKIE,
            self._begin_login(user),
            max_age=int(_LONGEST_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _user_with_password(self, user: str, password: str) -> str | None:
        """The user who logs in; None if name and password do not belong together."""
        expected = self._passwords.get(user, "")
        # A name or a password from a command line may not be valid Unicode.
        equal = hmac.compare_digest(
            expected.encode("utf-8", "surrogatepass"), password.encode("utf-8", "replace")
        )
        if equal and expected:
            return user
        token_user = self.user_of_token(password)
        return token_user if token_user == _TOKEN_USER + user else None

    def _may_come_in(self, user: str) -> bool:
        """Whether the password or the token of a login is still valid."""
        if not user.startswith(_TOKEN_USER) or self._tokens is None:
            return True
        with suppress(InputError):
            return self._tokens.has(user.removeprefix(_TOKEN_USER))
        return False

    def _begin_login(self, user: str) -> str:
        """A new cookie for a user. Logins that have ended are forgotten."""
        now = time.monotonic()
        self._logins = {key: login for key, login in self._logins.items() if login.valid(now)}
        own = [key for key, login in self._logins.items() if login.user == user]
        for key in own[: len(own) - _MAX_LOGINS + 1]:
            del self._logins[key]
        cookie = secrets.token_urlsafe(32)
        self._logins[cookie] = _Login(user, now, now)
        return cookie


def bearer_token(connection: HTTPConnection) -> str:
    """The token in the Authorization header, or in the subprotocols of a WebSocket; else ""."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    # In a browser a WebSocket has no other headers; OpenAI's clients name the key so.
    for offered in connection.headers.get("sec-websocket-protocol", "").split(","):
        if offered.strip().startswith(_KEY_PROTOCOL):
            return offered.strip().removeprefix(_KEY_PROTOCOL)
    return ""


def chosen_subprotocol(connection: HTTPConnection) -> str | None:
    """Return the subprotocol to answer a WebSocket with: an offered one that is not a token.

    A browser ends a connection whose server answers none of the offered ones.
    """
    offered = [name for name in connection.scope.get("subprotocols", ()) if _is_public(name)]
    return "realtime" if "realtime" in offered else next(iter(offered), None)


def _is_public(subprotocol: str) -> bool:
    return not subprotocol.lower().startswith(_KEY_PROTOCOL)


def _address(connection: HTTPConnection) -> str:
    return visitor_key(connection.client.host) if connection.client else ""


async def _read_form(request: Request) -> FormData:
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or len(length) > 9 or int(length) > _MAX_FORM_BYTES:
        return FormData()
    try:
        return await request.form(max_files=0, max_fields=4)
    except ClientDisconnect:
        return FormData()


def _login_page(problem: str, user: str = "", *, status: int = 200) -> Response:
    page = (STATIC / "login.html").read_text("utf-8")
    alert = f'<p class="ea-problem" role="alert">{escape(problem)}</p>' if problem else ""
    page = page.replace("<!-- problem -->", alert).replace("<!-- user -->", escape(user))
    return HTMLResponse(page, status)
