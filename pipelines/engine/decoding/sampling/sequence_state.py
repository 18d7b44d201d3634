"""One hypothesis of a generation: its tokens so far, and what goes with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pipelines.engine.decoding.sampling.logit_filters import BoundFilter

__all__ = ["Candidate", "SequenceState"]


@dataclass(slots=True)
class SequenceState:
    """What lies in one slot of a running batch. A plain generation has one lane.

    total: the sum of its log-probabilities. attention: [heads, source length] a token, where the
    request asks for it. rules: bound to this lane alone.
    """

    logit_filters: list[BoundFilter]
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    total: float = 0.0

    def child(self, candidate: Candidate, logit_filters: list[BoundFilter]) -> SequenceState:
        """This lane, one token longer."""
        return SequenceState(
            logit_filters,
            [*self.generated, candidate.token],
            [*self.logprobs, candidate.logprob],
            self.attention[:],
            candidate.total,
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on: from which lane, with which token, and what that makes its total."""

    parent: int
    token: int
    logprob: float
    total: float
