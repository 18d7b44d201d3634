"""The line in which requests of programs wait: bounded, by priority, fair to each client."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from edgeapp.server.places import Places

__all__ = ["MAX_WAITING", "Place", "QueueFull", "ShuttingDown", "WorkQueue"]

MAX_WAITING = 64
_MAX_RETRY_AFTER_S = 120.0
_SMOOTHING = 0.2  # weight of the newest request in the mean duration


class QueueFull(Exception):
    """No more requests may wait.

    Attributes:
        retry_after_s: When it is worth trying again, in whole seconds.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ShuttingDown(Exception):
    """The server is ending; it finishes what it has accepted."""


@dataclass(eq=False)
class Place:
    """A request's place, first in the line and then at work.

    Attributes:
        person: Whose request it is.
        priority: A lower number goes first.
        waited_s: Seconds in the line.
    """

    person: str
    priority: int
    waited_s: float = 0.0
    _queue: WorkQueue | None = field(default=None, repr=False)
    _turn: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _began: float = 0.0

    def release(self) -> None:
        """Give the place back. In the thread of the event loop; again is no error."""
        if (queue := self._queue) is not None:
            self._queue = None
            queue._leave(self)


class WorkQueue:
    """The requests that are at work, and those that wait. Used in the event loop's thread.

    Args:
        places: Those at work; sessions have some of them.
        waiting: The number that may wait.
        waiting_per_person: How many of those that wait may be one client's. None: all.
    """

    def __init__(
        self,
        places: Places,
        waiting: int = MAX_WAITING,
        waiting_per_person: int | None = None,
    ) -> None:
        self._places, self._max_waiting = places, waiting
        places.when_free(self._place_is_free)
        self._waiting_per_person = waiting if waiting_per_person is None else waiting_per_person
        self._working: set[Place] = set()
        self._line: list[Place] = []  # in the order of arrival
        self._mean_s = 2.0  # of a request at work
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def working(self) -> int:
        """The number of requests at work."""
        return len(self._working)

    @property
    def waiting(self) -> int:
        """The number of requests in the line."""
        return len(self._line)

    @property
    def closed(self) -> bool:
        """Whether no more requests are accepted."""
        return self._closed

    async def enter(self, person: str, priority: int) -> Place:
        """Wait for a place at work; its `release` must be called.

        Args:
            person: Whose request it is.
            priority: A lower number goes first; within one, who has the least at work.

        Raises:
            QueueFull: Too many wait already.
            ShuttingDown: `close` was called.
        """
        if self._closed:
            raise ShuttingDown
        self._loop = asyncio.get_running_loop()
        place = Place(person, priority, _queue=self, _began=time.monotonic())
        self._line.append(place)
        self._admit()
        if place in self._working:
            return place
        try:
            self._check_room(person)
            await place._turn.wait()
        except BaseException:
            place.release()
            raise
        return place

    def close(self) -> None:
        """Accept no more requests."""
        self._closed = True

    def _check_room(self, person: str) -> None:
        if len(self._line) > self._max_waiting:
            raise QueueFull(
                f"{self._max_waiting} requests wait here already; try again later",
                self._retry_after_s(len(self._line)),
            )
        own = sum(place.person == person for place in self._line)
        if own > self._waiting_per_person:
            raise QueueFull(
                f"{self._waiting_per_person} of your requests wait here already; try again later",
                self._retry_after_s(own),
            )

    def _retry_after_s(self, ahead: int) -> int:
        return ceil(min(_MAX_RETRY_AFTER_S, max(1.0, self._mean_s * ahead / self._places.limit)))

    def _leave(self, place: Place) -> None:
        if place in self._working:
            self._working.remove(place)
            taken = time.monotonic() - place._began
            self._mean_s += _SMOOTHING * (taken - self._mean_s)
            self._places.give_back(place)
        else:
            self._line.remove(place)
        self._admit()

    def _place_is_free(self) -> None:
        """Let a request go on, since a session has ended. From any thread."""
        if self._line and self._loop is not None:
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._admit)

    def _admit(self) -> None:
        """Give free places to those who are first in the line."""
        counts, per_person = self._places.count, self._places.per_person
        while ready := [place for place in self._line if counts(place.person) < per_person]:
            # min returns the first of equals: who came first.
            place = min(ready, key=lambda p: (p.priority, counts(p.person)))
            if not self._places.take(place, place.person):
                return
            self._line.remove(place)
            self._working.add(place)
            now = time.monotonic()
            place.waited_s, place._began = now - place._began, now
            place._turn.set()
