"""Rows that wait for room in a batch: the most urgent first, then the first to come."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from pipelines.engine.decoding.request_state import Row

__all__ = ["Waiting"]


class Waiting:
    """Only `add` may be called from other threads than the one that steps."""

    def __init__(self) -> None:
        self._inbox: deque[Row] = deque()
        self._heap: list[tuple[int, int, Row]] = []
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._inbox)

    def add(self, row: Row) -> None:
        self._inbox.append(row)

    @property
    def priorities(self) -> list[int]:
        """Of those that could be next."""
        return [
            int(row.request.priority) for row in [*self._inbox, *(e[2] for e in self._heap[:1])]
        ]

    def next(self) -> Row | None:
        """Who is to be let in first; it stays until `pop`."""
        self._sort_in()
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Row:
        return heapq.heappop(self._heap)[2]

    def drop_unwanted(self) -> list[Row]:
        """Take out those that were cancelled or whose time is over."""
        self._sort_in()
        gone = [row for _, _, row in self._heap if row.unwanted]
        if gone:
            # Asked once: meanwhile another one's time may be over.
            found = set(map(id, gone))
            self._heap = [entry for entry in self._heap if id(entry[2]) not in found]
            heapq.heapify(self._heap)
        return gone

    def drain(self) -> list[Row]:
        """Take out all, in their order."""
        self._sort_in()
        rows = [row for _, _, row in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return rows

    def _sort_in(self) -> None:
        while self._inbox:
            row = self._inbox.popleft()
            heapq.heappush(self._heap, (int(row.request.priority), next(self._arrivals), row))
