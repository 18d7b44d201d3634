"""Counters of a batch: requests, steps, tokens and occupancy."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.speculative.timing import DraftTiming


@dataclass(frozen=True)
class Statistics:
    """What one model has done since it was loaded, and its present load.

    Attributes:
        requests: Requests that got a slot.
        queue_s: Seconds that these waited for one, summed.
        steps: Decoding steps.
        tokens: Tokens of requests that have ended.
        occupancy: Sequences a step, on average.
        running: Requests that have a slot now.
        waiting: Requests that wait for one now.
        cache_bytes: Memory of the caches now.
        drafted: Tokens that drafters proposed.
        accepted: Those that the model accepted.
        draft_saved_s: Seconds saved by drafters, estimated from timed steps; negative for a loss.
        draft_pauses: How often drafting was paused because it lost time.
    """

    requests: int
    queue_s: float
    steps: int
    tokens: int
    occupancy: float
    running: int
    waiting: int
    cache_bytes: int
    drafted: int = 0
    accepted: int = 0
    draft_saved_s: float = 0.0
    draft_pauses: int = 0


@dataclass
class Counters:
    """Running counters of a batch; a few additions a step."""

    requests: int = 0
    queue_s: float = 0.0
    steps: int = 0
    sequence_steps: int = 0
    tokens: int = 0

    def admitted(self, state: RequestState) -> None:
        """Count a request that got a slot."""
        self.requests += 1
        self.queue_s += time.monotonic() - state.arrival_time

    def stepped(self, sequences: int) -> None:
        """Count a step over so many sequences."""
        self.steps += 1
        self.sequence_steps += sequences

    def left(self, state: RequestState) -> None:
        """Count a request that has ended."""
        self.tokens += len(state.generated)

    def report(
        self, running: int, waiting: int, cache_bytes: int, drafts: DraftTiming
    ) -> Statistics:
        """The counters so far, with the given present load."""
        occupancy = self.sequence_steps / self.steps if self.steps else 0.0
        return Statistics(
            self.requests, self.queue_s, self.steps, self.tokens, occupancy, running, waiting,
            cache_bytes, drafts.drafted, drafts.accepted, drafts.saved_s, drafts.pauses,
        )  # fmt: skip
