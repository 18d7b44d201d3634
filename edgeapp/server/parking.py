"""Sessions whose connection was lost: each waits for its tab to connect again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from edgeapp.server.sessions import Session

__all__ = ["PARKED_S", "Parking"]

PARKED_S = 120.0  # a session waits for this long, then its input ends


@dataclass(frozen=True)
class _Place:
    session: Session
    tokens: Sequence[str]
    user: str
    expiry: asyncio.TimerHandle


class Parking:
    """Parked sessions, by the tokens of their connection that was lost. Used in the event loop.

    Args:
        seconds: How long a session waits.
    """

    def __init__(self, seconds: float = PARKED_S) -> None:
        self._seconds = seconds
        self._places: dict[str, _Place] = {}

    def park(self, tokens: Sequence[str], session: Session, user: str) -> bool:
        """Keep a session, if it has tasks that can go on.

        Args:
            tokens: The secret tokens of its connection; the tab knows one of them.
            session: The session.
            user: Who may take it again.

        Returns:
            Whether it is kept. If not, the caller closes it.
        """
        if not session.park():
            return False
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._seconds, self._expire, tokens[0])
        place = _Place(session, tokens, user, expiry)
        self._places.update(dict.fromkeys(tokens, place))
        return True

    def take(self, token: str, user: str) -> Session | None:
        """The session of a lost connection; None if it is not there any more, or another's."""
        place = self._places.get(token)
        if place is None or place.user != user:
            return None
        self._remove(place)
        place.expiry.cancel()
        return place.session if place.session.claim() else None

    def _expire(self, token: str) -> None:
        place = self._places[token]
        self._remove(place)
        # What has arrived is still recognized, and stored.
        place.session.stop("live")

    def _remove(self, place: _Place) -> None:
        for token in place.tokens:
            del self._places[token]
