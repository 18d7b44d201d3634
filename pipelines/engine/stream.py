"""A running generation, as its owner sees it."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.engine.decoding.request import Event, Result
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.scheduler import Scheduler

__all__ = ["Stream"]


class Stream:
    """A running generation: iterate for its events, or ask for the whole result.

    Dropping, closing or leaving a `with` block cancels it; its slot is free before the next step.
    """

    def __init__(self, state: RequestState, scheduler: Scheduler) -> None:
        self._state, self._scheduler = state, scheduler
        self._read_to_the_end = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._read_to_the_end:
            raise StopIteration
        state = self._state
        if not state.events:
            self._scheduler.wait(state)
        if not state.events:
            assert state.error is not None
            raise state.error
        event = state.events.popleft()
        self._read_to_the_end = event.final
        return event

    @property
    def ready(self) -> bool:
        """Whether the next event, or the end, is there without waiting for a step."""
        return self._read_to_the_end or self._state.has_events

    def cancel(self) -> None:
        """End the generation before its next step. Harmless when it has ended."""
        self._state.cancelled = True

    close = cancel

    def result(self) -> Result:
        """Wait for the end. Events not read so far are consumed."""
        for _ in self:
            pass
        return self._state.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
