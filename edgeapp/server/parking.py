"""Sessions whose connection was lost: each waits for its tab to connect again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from edgeapp.server.sessions import Session

__all__ = ["PARKED_S", "Parking"]

PARKED_S = 120.0  # a session waits for this long, then its input ends


@dataclass(frozen=True)
class _Place:
    session: Session
    user: str
    expiry: asyncio.TimerHandle


class Parking:
    """Parked sessions, by the token of the connection that was lost. Used in the event loop.

    Args:
        seconds: How long a session waits.
    """

    def __init__(self, seconds: float = PARKED_S) -> None:
        self._seconds = seconds
        self._places: dict[str, _Place] = {}

    def park(self, token: str, session: Session, user: str) -> bool:
        """Keep a session, if it has tasks that can go on.

        Args:
            token: The secret token of its connection.
            session: The session.
            user: Who may take it again.

        Returns:
            Whether it is kept. If not, the caller closes it.
        """
        if not session.park():
            return False
        loop = asyncio.get_running_loop()
        self._places[token] = _Place(
            session, user, loop.call_later(self._seconds, self._expire, token)
        )
        return True

    def take(self, token: str, user: str) -> Session | None:
        """The session of a lost connection; None if it is not there any more, or another's."""
        place = self._places.get(token)
        if place is None or place.user != user:
            return None
        del self._places[token]
        place.expiry.cancel()
        return None if place.session.closed else place.session

    def _expire(self, token: str) -> None:
        place = self._places.pop(token)
        # What has arrived is still recognized, and stored.
        place.session.stop("live")
