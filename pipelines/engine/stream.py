"""A running generation, as its owner sees it."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.engine.decoding.request import Event, Result
from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.scheduler import Scheduler

__all__ = ["Stream"]


class Stream:
    """A running generation: iterate for its events, or ask for the whole result.

    Dropping, closing or leaving a `with` block cancels it; its slot is free before the next step.
    """

    def __init__(self, row: Row, scheduler: Scheduler) -> None:
        self._row, self._scheduler = row, scheduler
        self._read_to_the_end = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._read_to_the_end:
            raise StopIteration
        row = self._row
        if not row.events:
            self._scheduler.wait(row)
        if not row.events:
            assert row.error is not None
            raise row.error
        event = row.events.popleft()
        self._read_to_the_end = event.final
        return event

    @property
    def ready(self) -> bool:
        """Whether the next event, or the end, is there without waiting for a step."""
        return self._read_to_the_end or self._row.has_news

    def cancel(self) -> None:
        """End the generation before its next step. Harmless when it has ended."""
        self._row.cancelled = True

    close = cancel

    def result(self) -> Result:
        """Wait for the end. Events not read so far are consumed."""
        for _ in self:
            pass
        return self._row.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
