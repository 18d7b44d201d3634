"""Rows that wait for room in a batch: the most urgent first, then the first to come."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from pipelines.engine.decoding.request_state import RequestState

__all__ = ["RequestQueue"]


class RequestQueue:
    """Only `add` may be called from other threads than the one that steps."""

    def __init__(self) -> None:
        self._inbox: deque[RequestState] = deque()
        self._heap: list[tuple[int, int, RequestState]] = []
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._inbox)

    def add(self, state: RequestState) -> None:
        self._inbox.append(state)

    @property
    def priorities(self) -> list[int]:
        """Of those that could be next."""
        return [state.request.priority for state in [*self._inbox, *(e[2] for e in self._heap[:1])]]

    def next(self) -> RequestState | None:
        """Who is to be let in first; it stays until `pop`."""
        self._sort_in()
        return self._heap[0][2] if self._heap else None

    def pop(self) -> RequestState:
        return heapq.heappop(self._heap)[2]

    def pop_stopped(self) -> list[RequestState]:
        """Take out those that were cancelled or whose time is over."""
        self._sort_in()
        gone = [state for _, _, state in self._heap if state.should_stop]
        if gone:
            # Asked once: meanwhile another one's time may be over.
            found = set(map(id, gone))
            self._heap = [entry for entry in self._heap if id(entry[2]) not in found]
            heapq.heapify(self._heap)
        return gone

    def drain(self) -> list[RequestState]:
        """Take out all, in their order."""
        self._sort_in()
        states = [state for _, _, state in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return states

    def _sort_in(self) -> None:
        while self._inbox:
            state = self._inbox.popleft()
            heapq.heappush(self._heap, (state.request.priority, next(self._arrivals), state))
