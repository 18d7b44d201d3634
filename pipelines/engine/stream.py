"""A running generation, from the caller's side."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.engine.decoding.request import Event, Result
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.errors import own_copy

# Unread events from which on a task behind the first one is resumed: a loop is noticed early, and
# few resumptions read many events.
_BACKLOG = 16


class Stream:
    """The events of a running generation, read by iterating; `result` returns the whole output.

    Iterating computes: a step runs whenever no event is ready and no other thread computes.
    Closing the stream, leaving its `with` block, or dropping the last reference cancels the
    generation, whose slots are free before the next step.
    """

    def __init__(self, state: RequestState, scheduler: Scheduler) -> None:
        self._state, self._scheduler = state, scheduler
        self._exhausted = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._exhausted:
            raise StopIteration
        state = self._state
        if not state.events:
            self._scheduler.wait(state)
        if not state.events:
            assert state.error is not None
            raise own_copy(state.error)
        event = state.events.popleft()
        self._exhausted = event.final
        return event

    @property
    def ready(self) -> bool:
        """Whether the next event, error or end can be read without computing a step."""
        return self._exhausted or self._state.has_events

    @property
    def worth_reading(self) -> bool:
        """Whether it has ended, or so many events are unread that reading them is worth a turn."""
        return self._exhausted or self._state.done or len(self._state.events) >= _BACKLOG

    def cancel(self) -> None:
        """End the generation before its next step; no effect when it has ended."""
        self._state.cancelled = True

    close = cancel

    def result(self) -> Result:
        """Wait for the end and return the whole output, consuming all unread events.

        Raises:
            EngineError: The generation failed.
        """
        for _ in self:
            pass
        return self._state.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
