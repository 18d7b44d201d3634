"""Limits on password guessing: of one address, and of all addresses together."""

from __future__ import annotations

import time

__all__ = ["LoginAttempts"]

_WINDOW_S = 60.0
_MAX_PER_ADDRESS, _MAX_IN_ALL = 10, 100  # failed and unfinished attempts within the window
_MAX_KNOWN = 1_000


class LoginAttempts:
    """The attempts of the last minute that did not succeed.

    Addresses from which somebody has logged in are not subject to the limit of all addresses:
    a flood of guesses from elsewhere does not keep their users out.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, list[float]] = {}  # address → times (time.monotonic)
        self._known: dict[str, None] = {}  # addresses of successful logins, in their order

    def begin(self, address: str) -> float | None:
        """Count an attempt.

        Returns:
            Its time, for `succeed`; None if a limit is reached and it must be refused.
        """
        now = time.monotonic()
        self._forget_before(now - _WINDOW_S)
        own = len(self._attempts.get(address, ()))
        in_all = sum(map(len, self._attempts.values()))
        if own >= _MAX_PER_ADDRESS or (in_all >= _MAX_IN_ALL and address not in self._known):
            return None
        self._attempts.setdefault(address, []).append(now)
        return now

    def succeed(self, address: str, attempt: float) -> None:
        """Do not count an attempt any more."""
        times = self._attempts.get(address, [])
        if attempt in times:  # else it took longer than the window
            times.remove(attempt)
        if not times:
            self._attempts.pop(address, None)
        self._known.pop(address, None)
        self._known[address] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _forget_before(self, oldest: float) -> None:
        recent = {
            address: [began for began in times if began >= oldest]
            for address, times in self._attempts.items()
        }
        self._attempts = {address: times for address, times in recent.items() if times}
