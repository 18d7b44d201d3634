"""Requests waiting for a free slot in a batch, by priority and then by arrival."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from pipelines.engine.decoding.request_state import RequestState


class RequestQueue:
    """A priority queue; lower priorities first, first come first served among equals.

    `add` may be called from any thread, all else only from the thread that steps.
    """

    def __init__(self) -> None:
        self._inbox: deque[RequestState] = deque()  # added, not yet in the heap
        self._heap: list[tuple[int, int, RequestState]] = []  # (priority, arrival, request)
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._inbox)

    def add(self, state: RequestState) -> None:
        """Append a request."""
        self._inbox.append(state)

    @property
    def priorities(self) -> list[int]:
        """The priorities of all requests that could be the next one."""
        return [state.request.priority for state in [*self._inbox, *(e[2] for e in self._heap[:1])]]

    def next(self) -> RequestState | None:
        """The request to admit next, which stays in the queue; None when the queue is empty."""
        self._sort_inbox()
        return self._heap[0][2] if self._heap else None

    def pop(self) -> RequestState:
        """Remove and return the request that `next` returned."""
        return heapq.heappop(self._heap)[2]

    def pop_stopped(self) -> list[RequestState]:
        """Remove and return all requests that were cancelled or whose timeout has passed."""
        self._sort_inbox()
        stopped = [state for _, _, state in self._heap if state.should_stop]
        if stopped:
            # `should_stop` is read once a request: a second read may see another timeout pass.
            ids = set(map(id, stopped))
            self._heap = [entry for entry in self._heap if id(entry[2]) not in ids]
            heapq.heapify(self._heap)
        return stopped

    def drain(self) -> list[RequestState]:
        """Remove and return all requests, in order."""
        self._sort_inbox()
        states = [state for _, _, state in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return states

    def _sort_inbox(self) -> None:
        while self._inbox:
            state = self._inbox.popleft()
            heapq.heappush(self._heap, (state.request.priority, next(self._arrivals), state))
