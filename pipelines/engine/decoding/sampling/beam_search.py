"""Beam search under the stopping rules of three implementations, each followed exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.sampling.search import (
    Candidate,
    ScoredSequence,
    SequenceState,
    hypothesis_score,
)


class BeamSearch:
    """Keeps the `beam_size` most probable sequences until its stopping rule is met.

    The rules, by the `stopping` option:

    - hf: transformers' `generate(num_beams=…, early_stopping=False)`. A pool keeps the best
      beam_size × patience hypotheses; the search ends when the best sequence could not enter it.
    - openai: `decode(beam_size=…, patience=…)` of OpenAI's reference implementation of speech
      recognition. The search ends with the first beam_size × patience hypotheses; at the length
      limit unfinished sequences fill up the pool.
    - ct2: CTranslate2's. The search ends with as many hypotheses, at the end of a step; without
      length penalty and patience, as soon as the best sequence has ended.

    Args:
        options: The request's options.
        limit: Upper bound of the tokens of a hypothesis, eos included.
    """

    needs_all = False

    def __init__(self, options: GenerationOptions, limit: int) -> None:
        self._options, self._limit = options, limit
        self._beam_size = options.beam_size
        size = options.beam_size * options.patience
        # C++ rounds halves up, Python to even numbers.
        rounded = math.floor(size + 0.5) if options.stopping == "ct2" else round(size)
        self._pool_size = max(1, rounded)
        self._stop = _STOPPING_RULES[options.stopping]
        self.scores_first = options.stopping == "hf"
        self.done = False
        self.hypotheses: list[ScoredSequence] = []

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """The sequences to continue with, from logits [sequences, vocab]."""
        length = len(sequences[0].generated) + 1
        candidates = self._candidates(sequences, logits)
        survivors = self._stop(self, sequences, candidates, length)
        self.done = self.done or not survivors or length >= self._limit
        return survivors

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        """The hypotheses, best first."""
        pool = self.hypotheses
        if self._options.stopping == "openai" and len(pool) < self._beam_size:
            best = sorted(sequences, key=lambda sequence: -sequence.total)
            unfinished = best[: self._beam_size - len(pool)]
            pool = [*pool, *((self._score(each, ended=False), each) for each in unfinished)]
        return sorted(pool, key=lambda scored: -scored[0])

    def _candidates(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """The most probable next tokens of all sequences, best first."""
        logprobs = logits if self.scores_first else logits.log_softmax(-1)
        openai = self._options.stopping == "openai"
        # Enough for beam_size candidates that are no eos, wherever the eos ids rank.
        count = max(2, 1 + len(self._options.eos_ids)) * self._beam_size
        best = logprobs.topk(min(self._beam_size + 1 if openai else count, logprobs.shape[-1]))
        totals = torch.tensor([sequence.total for sequence in sequences], device=logits.device)
        # Summed in float32, as all three implementations do, so that ties are the same.
        sums = (best.values + totals[:, None]).tolist()
        candidates = [
            Candidate(parent, token, logprob, total)
            for parent, row in enumerate(zip(best.indices.tolist(), best.values.tolist(), sums,
                                             strict=True))
            for token, logprob, total in zip(*row, strict=True)
            if total > -torch.inf
        ]  # fmt: skip
        candidates.sort(key=lambda candidate: -candidate.total)
        return candidates if openai else candidates[:count]

    def _is_eos(self, candidate: Candidate) -> bool:
        return candidate.token in self._options.eos_ids

    def _add_hypothesis(self, sequences: Sequence[SequenceState], candidate: Candidate) -> None:
        sequence = sequences[candidate.parent].child(candidate, [])
        self.hypotheses.append((self._score(sequence, ended=self._is_eos(candidate)), sequence))

    def _score(self, sequence: SequenceState, *, ended: bool) -> float:
        options = self._options
        length = len(sequence.generated)
        return hypothesis_score(
            options.stopping, options.length_penalty, sequence.total, length, ended
        )

    def _hf(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        at_limit = length >= self._limit
        for candidate in candidates[: self._beam_size]:
            if at_limit or self._is_eos(candidate):
                self._add_hypothesis(sequences, candidate)
        self.hypotheses = sorted(self.hypotheses, key=lambda scored: -scored[0])[: self._pool_size]
        if at_limit:
            return []
        survivors = [candidate for candidate in candidates if not self._is_eos(candidate)][
            : self._beam_size
        ]
        if survivors and len(self.hypotheses) == self._pool_size:
            # The score of the best sequence if it ended here.
            best_possible = hypothesis_score(
                "hf", self._options.length_penalty, survivors[0].total, length, ended=True
            )
            self.done = best_possible <= self.hypotheses[-1][0]
        return survivors

    def _openai(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        survivors: list[Candidate] = []
        for candidate in candidates:
            if not self._is_eos(candidate):
                survivors.append(candidate)
                if len(survivors) == self._beam_size:
                    break
            elif len(self.hypotheses) < self._pool_size:
                self._add_hypothesis(sequences, candidate)
        self.done = len(self.hypotheses) >= self._pool_size
        return survivors

    def _ct2(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        options, at_limit = self._options, length >= self._limit
        for candidate in candidates[: self._beam_size]:
            if at_limit or self._is_eos(candidate):
                self._add_hypothesis(sequences, candidate)
        enough = self._pool_size
        if options.patience == 1 and options.length_penalty == 0:
            # Without length normalization no other sequence can overtake an ended best one.
            enough = (
                options.n_best
                if candidates and self._is_eos(candidates[0])
                else len(self.hypotheses) + 1
            )
        self.done = len(self.hypotheses) >= enough
        if at_limit:
            return []
        return [candidate for candidate in candidates if not self._is_eos(candidate)][
            : self._beam_size
        ]


class _StoppingRule(Protocol):
    def __call__(
        self,
        search: BeamSearch,
        /,
        sequences: Sequence[SequenceState],
        candidates: list[Candidate],
        length: int,
    ) -> list[Candidate]:
        """Collect ended hypotheses, set `done`, and return the candidates to continue with."""
        ...


_STOPPING_RULES: dict[str, _StoppingRule] = {
    "hf": BeamSearch._hf,
    "openai": BeamSearch._openai,
    "ct2": BeamSearch._ct2,
}
