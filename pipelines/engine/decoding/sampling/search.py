"""Generations that follow several lanes at once, and the ranking of what they end with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.distributions import sample_from, token_distribution
from pipelines.engine.decoding.sampling.logit_filters import BoundFilter
from pipelines.engine.decoding.sampling.options import GenerationOptions, StoppingRule

__all__ = [
    "BestOfSearch",
    "Candidate",
    "ScoredSequence",
    "SearchStrategy",
    "SequenceState",
    "hypothesis_score",
]


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


ScoredSequence = tuple[float, SequenceState]
"""(score, an ended hypothesis)"""


class SearchStrategy(Protocol):
    """Decides which lanes a generation goes on with.

    scores_first: the rules work on log-probabilities of the bare logits, which are not
    normalised again. each_goes_on: every lane has to find a token, not just one of them.
    found: what has ended so far; done: nothing further is to come.
    """

    scores_first: bool
    each_goes_on: bool
    done: bool
    found: list[ScoredSequence]

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """The lanes to go on with, from logits [lanes, vocab] after the rules."""
        ...

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        """The hypotheses, best first; `sequences` are those of the last step."""
        ...


def hypothesis_score(
    rule: StoppingRule, penalty: float | None, total: float, length: int, ended: bool
) -> float:
    """What a hypothesis of `length` tokens, with the eos if it has `ended`, is ranked by.

    hf, ct2: total / length ** penalty (1 when None). openai: total over the length without eos,
    or, with a penalty, over ((5 + length) / 6) ** penalty (Wu et al. 2016).
    """
    if rule != "openai":
        return float(total / length ** (1.0 if penalty is None else penalty))
    text = max(1, length - ended)
    return float(total / (text if penalty is None else ((5 + text) / 6) ** penalty))


class BestOfSearch:
    """Best of n: as many samples side by side, the likeliest of which is the result.

    Ranked as openai-whisper ranks them: by log-probability over length, at temperature 1 and
    after the rules.
    """

    scores_first, each_goes_on = False, True

    def __init__(self, options: GenerationOptions, limit: int, generator: torch.Generator) -> None:
        self._options, self._limit, self.generator = options, limit, generator
        self.done = False
        self.found: list[ScoredSequence] = []

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        options, candidates = self._options, []
        parents = [0] * options.best_of if not sequences[0].generated else range(len(sequences))
        logprobs = logits.log_softmax(-1)
        for parent in parents:
            probs = token_distribution(
                logits[parent], options.temperature, options.top_k, options.top_p, options.min_p
            )
            token = int(sample_from(probs, self.generator))
            logprob = float(logprobs[parent, token])
            candidate = Candidate(parent, token, logprob, sequences[parent].total + logprob)
            ended = token in options.eos_ids
            if not ended and len(sequences[parent].generated) + 1 < self._limit:
                candidates.append(candidate)
                continue
            sequence = sequences[parent].child(candidate, [])
            score = hypothesis_score(
                "openai", options.length_penalty, sequence.total, len(sequence.generated), ended
            )
            self.found.append((score, sequence))
        self.done = not candidates
        return candidates

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        return sorted(self.found, key=lambda found: -found[0])
