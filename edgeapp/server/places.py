"""The places at work, which sessions and requests of programs share, of a limited number."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

__all__ = ["Places"]


class Places:
    """A count of those at work, with a limit for all and one for each person. Thread-safe.

    Args:
        limit: The number of places.
        per_person: How many of them one person may have. None: all.

    Attributes:
        limit: The number of places.
        per_person: How many of them one person may have.
    """

    def __init__(self, limit: int, per_person: int | None = None) -> None:
        self.limit, self.per_person = limit, per_person or limit
        self._lock = threading.Lock()
        self._taken: dict[object, str] = {}  # holder → person
        self._counts: Counter[str] = Counter()  # of _taken, by person
        self._on_free: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        """Whether no place is free."""
        return len(self._taken) >= self.limit

    def count(self, person: str) -> int:
        """Return the number of places that a person has."""
        return self._counts[person]

    def take(self, holder: object, person: str) -> bool:
        """Take a place if one is free for this person.

        Args:
            holder: Who works there; `give_back` names it.
            person: Whose limit it counts against.

        Returns:
            Whether the holder has a place.
        """
        with self._lock:
            if self.full or self._counts[person] >= self.per_person:
                return False
            self._taken[holder] = person
            self._counts[person] += 1
            return True

    def give_back(self, holder: object) -> None:
        """Free the place of a holder. One without a place is no error."""
        with self._lock:
            person = self._taken.pop(holder, None)
            if person is None:
                return
            self._counts[person] -= 1
            if not self._counts[person]:
                del self._counts[person]
        for function in self._on_free:
            function()

    def when_free(self, function: Callable[[], None]) -> None:
        """Call a function, in any thread, each time that a place has become free."""
        self._on_free.append(function)
