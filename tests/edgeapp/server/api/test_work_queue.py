"""The line of requests: bounded, by priority, fair, and left at once by who goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edgeapp.server.api.work_queue import Place, QueueFull, ShuttingDown, WorkQueue
from edgeapp.server.places import Places

LIVE, BATCH = 0, 3


def run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_number_at_work_is_bounded_and_all_get_their_turn() -> None:
    async def test() -> None:
        queue = WorkQueue(Places(2))
        most = done = 0

        async def work() -> None:
            nonlocal most, done
            place = await queue.enter("anna", BATCH)
            most = max(most, queue.working)
            await asyncio.sleep(0)
            place.release()
            done += 1

        await asyncio.gather(*(work() for _ in range(50)))
        assert (most, done, queue.working, queue.waiting) == (2, 50, 0, 0)

    run(test)


def test_the_line_is_bounded() -> None:
    async def test() -> None:
        queue = WorkQueue(Places(1), waiting=64)
        first = await queue.enter("anna", BATCH)
        waiting = [asyncio.ensure_future(queue.enter("anna", BATCH)) for _ in range(64)]
        await settled()
        with pytest.raises(QueueFull) as full:
            await queue.enter("ben", BATCH)
        assert 1 <= full.value.retry_after_s <= 120
        assert queue.waiting == 64
        first.release()
        (await waiting[0]).release()
        for each in waiting[1:]:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (queue.working, queue.waiting) == (0, 0)

    run(test)


def test_live_goes_before_batch_and_who_has_nothing_at_work_before_others() -> None:
    async def test() -> None:
        queue, order = WorkQueue(Places(2)), []
        held = [await queue.enter("anna", BATCH), await queue.enter("ben", BATCH)]

        async def wait(person: str, priority: int) -> Place:
            place = await queue.enter(person, priority)
            order.append((person, priority))
            return place

        line = [("anna", BATCH), ("anna", BATCH), ("ben", BATCH), ("carl", LIVE)]
        waiting = [asyncio.ensure_future(wait(*each)) for each in line]
        await settled()
        held[1].release()
        await settled()
        assert order == [("carl", LIVE)]
        (await waiting[3]).release()
        await settled()
        assert order[1] == ("ben", BATCH), "anna has one at work already"
        held[0].release()
        for each in (*waiting[:2], waiting[2]):
            (await each).release()

    run(test)


def test_one_client_cannot_take_every_place() -> None:
    async def test() -> None:
        queue = WorkQueue(Places(3, 2), waiting=8, waiting_per_person=2)
        held = [await queue.enter("anna", BATCH) for _ in range(2)]
        waiting = [asyncio.ensure_future(queue.enter("anna", BATCH)) for _ in range(2)]
        await settled()
        with pytest.raises(QueueFull, match="of your requests"):
            await queue.enter("anna", BATCH)
        (await queue.enter("ben", BATCH)).release()
        for place in held:
            place.release()
        for each in waiting:
            (await each).release()

    run(test)


def test_who_leaves_the_line_takes_no_place() -> None:
    async def test() -> None:
        queue = WorkQueue(Places(1))
        first = await queue.enter("anna", BATCH)
        gone = asyncio.ensure_future(queue.enter("anna", BATCH))
        next_ = asyncio.ensure_future(queue.enter("anna", BATCH))
        await settled()
        gone.cancel()
        await settled()
        first.release()
        first.release()  # again is no error
        (await next_).release()
        assert (queue.working, queue.waiting) == (0, 0)

    run(test)


def test_a_closed_queue_finishes_what_it_has_accepted() -> None:
    async def test() -> None:
        queue = WorkQueue(Places(1))
        first = await queue.enter("anna", BATCH)
        accepted = asyncio.ensure_future(queue.enter("anna", BATCH))
        await settled()
        queue.close()
        with pytest.raises(ShuttingDown):
            await queue.enter("anna", BATCH)
        first.release()
        (await accepted).release()

    run(test)
