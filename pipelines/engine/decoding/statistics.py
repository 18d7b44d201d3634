"""What a batch has done so far."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pipelines.engine.decoding.request_state import RequestState

__all__ = ["Counters", "Statistics"]


@dataclass(frozen=True)
class Statistics:
    """Of one model since it was loaded.

    requests: that have got a slot. queue_s: seconds that these waited for one, in all. steps:
    passes that gave tokens. tokens: given by generations that have ended. occupancy: lanes a step
    on average. running, waiting: requests at present. cache_bytes: of their keys and values.
    """

    requests: int
    queue_s: float
    steps: int
    tokens: int
    occupancy: float
    running: int
    waiting: int
    cache_bytes: int


@dataclass
class Counters:
    """Kept while a batch runs; two additions a step."""

    requests: int = 0
    queue_s: float = 0.0
    steps: int = 0
    lane_steps: int = 0
    tokens: int = 0

    def admitted(self, state: RequestState) -> None:
        self.requests += 1
        self.queue_s += time.monotonic() - state.arrived

    def stepped(self, sequences: int) -> None:
        self.steps += 1
        self.lane_steps += sequences

    def left(self, state: RequestState) -> None:
        self.tokens += len(state.generated)

    def report(self, running: int, waiting: int, cache_bytes: int) -> Statistics:
        occupancy = self.lane_steps / self.steps if self.steps else 0.0
        return Statistics(
            self.requests, self.queue_s, self.steps, self.tokens, occupancy, running, waiting,
            cache_bytes,
        )  # fmt: skip
