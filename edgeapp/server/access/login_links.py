"""Links that log a browser in once: the address in the QR code of the terminal and of the page."""

from __future__ import annotations

import secrets
import threading
import time

__all__ = ["LOGIN_LINK_S", "LoginLinks"]

LOGIN_LINK_S = 600.0
_MAX_LINKS = 20  # of one user at the same time; the oldest ends


class LoginLinks:
    """The links that were made and are not used yet. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[str, tuple[str, float]] = {}  # secret → user, end by time.monotonic()

    def make(self, user: str) -> str:
        """A new secret, with which `user` logs in once within ten minutes."""
        secret = secrets.token_urlsafe(16)
        with self._lock:
            self._forget_ended()
            own = [key for key, (other, _) in self._links.items() if other == user]
            for key in own[: len(own) - _MAX_LINKS + 1]:
                del self._links[key]
            self._links[secret] = user, time.monotonic() + LOGIN_LINK_S
        return secret

    def valid(self, secret: str) -> bool:
        """Whether a secret can still be used."""
        with self._lock:
            self._forget_ended()
            return secret in self._links

    def take(self, secret: str) -> str | None:
        """The user of a secret, which is used up; None: it is unknown, used or too old."""
        with self._lock:
            self._forget_ended()
            user, _ = self._links.pop(secret, (None, 0.0))
            return user

    def _forget_ended(self) -> None:
        now = time.monotonic()
        self._links = {key: link for key, link in self._links.items() if link[1] > now}
