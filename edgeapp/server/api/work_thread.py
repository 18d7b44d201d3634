"""A generator that computes, run in a thread for a request; a client that leaves ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing, suppress
from typing import Any, TypeVar

from starlette.requests import Request

from edgeapp.server.api.work_queue import Place

__all__ = [
    "ClientLeft",
    "RunningWork",
    "Work",
    "WorkCancelled",
    "collect",
    "gathered",
    "in_thread",
    "unless",
    "unless_client_leaves",
]

T = TypeVar("T")
Work = Callable[[Callable[[], bool]], Generator[T, None, None]]
"""Takes a function that says whether the work was cancelled."""


class ClientLeft(Exception):
    """The client closed its connection before the response was complete."""


class WorkCancelled(Exception):
    """The work was cancelled before its end, because the server ends."""


class RunningWork:
    """The work of all requests, so that the end of the server can cancel it."""

    def __init__(self) -> None:
        self._cancels: set[threading.Event] = set()

    def begin(self) -> threading.Event:
        """The event that cancels a new piece of work."""
        cancelled = threading.Event()
        self._cancels.add(cancelled)
        return cancelled

    def end(self, cancelled: threading.Event) -> None:
        """Forget a piece of work."""
        self._cancels.discard(cancelled)

    def cancel_all(self) -> None:
        """Cancel what runs. From any thread."""
        for cancelled in list(self._cancels):
            cancelled.set()


def in_thread(
    work: Work[T],
    place: Place,
    running: RunningWork,
    ended: Callable[[], None] = lambda: None,
) -> AsyncGenerator[T, None]:
    """Run a generator in a thread of its own, from now on.

    Args:
        work: Makes the generator. It is closed after its next item once it is cancelled.
        place: Released when the thread has ended, which may be later than this generator.
        running: All work.
        ended: Called in the thread at its end.

    Returns:
        The items of the generator, which raises its errors. Closing it cancels the work, once it
        was begun; the work of one that is never begun goes on to its end.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()
    cancelled = running.begin()

    def post(item: T | None = None, error: BaseException | None = None, end: bool = False) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(events.put_nowait, (item, error, end))

    def run() -> None:
        try:
            with closing(work(cancelled.is_set)) as items:
                for item in items:
                    if cancelled.is_set():
                        break
                    post(item)
            post(error=WorkCancelled() if cancelled.is_set() else None, end=True)
        except BaseException as error:
            post(error=error, end=True)
        finally:
            running.end(cancelled)
            ended()
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(place.release)

    # A daemon: it does not hold up the end of the program.
    thread = threading.Thread(target=run, name="edgeapp-api", daemon=True)
    try:
        thread.start()
    except BaseException:
        running.end(cancelled)
        ended()
        place.release()
        raise
    return _items(events, cancelled)


async def _items(
    events: asyncio.Queue[tuple[Any, BaseException | None, bool]], cancelled: threading.Event
) -> AsyncGenerator[Any, None]:
    try:
        while True:
            item, error, end = await events.get()
            if error is not None:
                raise error
            if end:
                return
            yield item
    finally:
        cancelled.set()


async def unless_client_leaves(request: Request, work: Awaitable[T]) -> T:
    """Wait for a result; cancel it when the client closes its connection.

    Args:
        request: Its body must have been read.
        work: What is waited for.

    Raises:
        ClientLeft: The client closed its connection.
    """
    return await unless(_disconnected(request), work)


async def unless(left: Awaitable[object], work: Awaitable[T]) -> T:
    """Wait for a result.

    Args:
        left: Ends when the client has left.
        work: What is waited for.

    Raises:
        ClientLeft: The client left first; the work is cancelled.
    """
    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left)
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return await task
    finally:
        for each in (task, leaving):
            each.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def collect(items: AsyncGenerator[T, None]) -> list[T]:
    """All items of a generator, which is closed if this call is cancelled."""
    async with aclosing(items):
        return [item async for item in items]


async def gathered(items: AsyncGenerator[T, None], pace_s: float) -> AsyncGenerator[list[T], None]:
    """The items of a generator in groups, which come no faster than a pace. No item waits longer.

    Args:
        items: Closed with this generator.
        pace_s: The time between two groups, in seconds. The last one may come sooner.
    """
    loop = asyncio.get_running_loop()
    group: list[T] = []
    due = loop.time()
    async with aclosing(items):
        coming = asyncio.ensure_future(anext(items))
        try:
            while True:
                await asyncio.wait((coming,), timeout=due - loop.time() if group else None)
                if coming.done():
                    if coming.exception() is not None:
                        break
                    group.append(coming.result())
                    coming = asyncio.ensure_future(anext(items))
                if group and loop.time() >= due:
                    yield group
                    group, due = [], loop.time() + pace_s
            if group:
                yield group
            with suppress(StopAsyncIteration):
                coming.result()
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
