"""Searches that follow several sequences at once, and the ranking of their hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.distributions import draw, next_distribution
from pipelines.engine.decoding.sampling.logit_filters import BoundFilter
from pipelines.engine.decoding.sampling.options import GenerationOptions, StoppingRule


@dataclass(slots=True)
class SequenceState:
    """One hypothesis of a request, in one slot of a batch. A plain generation has one sequence.

    Attributes:
        logit_filters: Bound to this sequence.
        generated: Output ids.
        logprobs: Their log-probabilities.
        attention: For each output id the cross-attention [heads, source length] with which it was
            chosen; empty unless requested.
        total: Sum of the log-probabilities.
    """

    logit_filters: list[BoundFilter]
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    total: float = 0.0

    def child(self, candidate: Candidate, logit_filters: list[BoundFilter]) -> SequenceState:
        """A copy of this sequence with one more token."""
        return SequenceState(
            logit_filters,
            [*self.generated, candidate.token],
            [*self.logprobs, candidate.logprob],
            self.attention[:],
            candidate.total,
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible next token of the sequence with the index `parent`, its log-probability, and that
    of the sequence with it."""

    parent: int
    token: int
    logprob: float
    total: float


ScoredSequence = tuple[float, SequenceState]
"""(score, an ended hypothesis)"""


class SearchStrategy(Protocol):
    """Decides which sequences a request continues with.

    Attributes:
        scores_first: The logit filters are applied to log-probabilities, which are not normalized
            again.
        needs_all: Every sequence needs a possible next token, not just one of them.
        done: The search is over.
        hypotheses: Those that have ended so far.
    """

    scores_first: bool
    needs_all: bool
    done: bool
    hypotheses: list[ScoredSequence]

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """Return the sequences to continue with, by logits [sequences, vocab] after the logit
        filters."""
        ...

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        """The hypotheses, best first; `sequences` are those after the last step."""
        ...


def hypothesis_score(
    rule: StoppingRule, penalty: float | None, total: float, length: int, ended: bool
) -> float:
    """The score that a hypothesis is ranked by, of its log-probability and its tokens with the eos.

    hf, ct2: total / length ** penalty (1 when None). openai: total / length without eos, or, with a
    penalty, total / ((5 + length) / 6) ** penalty (Wu et al. 2016).
    """
    if rule != "openai":
        return float(total / length ** (1.0 if penalty is None else penalty))
    text = max(1, length - ended)
    return float(total / (text if penalty is None else ((5 + text) / 6) ** penalty))


class BestOfSearch:
    """Best of n: n samples drawn in parallel, of which the most probable is the result.

    Ranked as in the reference implementation of the `openai` rule: by log-probability over length,
    at temperature 1 and after the logit filters.
    """

    scores_first, needs_all = False, True

    def __init__(self, options: GenerationOptions, limit: int, generator: torch.Generator) -> None:
        self._options, self._limit, self.generator = options, limit, generator
        self.done = False
        self.hypotheses: list[ScoredSequence] = []

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """Draw a token for each sequence; in the first step, all samples from the one prompt."""
        options, candidates = self._options, []
        parents = [0] * options.best_of if not sequences[0].generated else range(len(sequences))
        logprobs = logits.log_softmax(-1)
        for parent in parents:
            token = draw(next_distribution(logits[parent], options), options, self.generator)
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
            self.hypotheses.append((score, sequence))
        self.done = not candidates
        return candidates

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        """The samples, best first."""
        return sorted(self.hypotheses, key=lambda scored: -scored[0])
