"""Calls whose client waits on another connection, so that a client that leaves ends them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from edgeapp.server.api.work_thread import unless

__all__ = ["Call", "Calls"]

T = TypeVar("T")


class Call:
    """A call that runs, and whether its client has left."""

    def __init__(self) -> None:
        self._left = asyncio.Event()

    def end(self) -> None:
        """The client has left."""
        self._left.set()

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Wait for a result.

        Raises:
            ClientLeft: The client left first; the work is cancelled.
        """
        return await unless(self._left.wait(), work)

    async def each_of(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The items of a generator, which is closed when the client leaves.

        Raises:
            ClientLeft: It left.
        """
        async with aclosing(items):
            while True:
                try:
                    item = await self.wait_for(anext(items))
                except StopAsyncIteration:
                    return
                yield item


class Calls:
    """All calls, by the session of their client. Used in the event loop's thread."""

    def __init__(self) -> None:
        self._running: defaultdict[str, set[Call]] = defaultdict(set)

    @contextmanager
    def running(self, session: str) -> Iterator[Call]:
        """A call of a session, for as long as it runs."""
        call = Call()
        self._running[session].add(call)
        try:
            yield call
        finally:
            self._running[session].discard(call)
            if not self._running[session]:
                del self._running[session]

    def end(self, session: str) -> None:
        """The client of a session has left: end its calls."""
        for call in list(self._running.get(session, ())):
            call.end()
