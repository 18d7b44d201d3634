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

__all__ = ["BeamSearch"]


class BeamSearch:
    """Keeps the `beam_size` likeliest lanes until its rule says that enough has been found.

    hf: transformers' `generate(num_beams=…, early_stopping=False)`. The pool keeps the best
        beam_size × patience hypotheses; the search ends when the best lane could not enter it.
    openai: openai-whisper's `decode(beam_size=…, patience=…)`. Ends with the first
        beam_size × patience hypotheses; lanes fill up the pool when time is over.
    ct2: CTranslate2's. Ends with as many hypotheses, but not in the middle of a step; without
        length penalty and patience already when the best lane has ended.
    """

    each_goes_on = False

    def __init__(self, options: GenerationOptions, limit: int) -> None:
        """limit: no hypothesis is longer than this, eos included."""
        self._options, self._limit = options, limit
        self._beams = options.beam_size
        wanted = options.beam_size * options.patience
        # C++ rounds halves up, Python to even numbers.
        pool = math.floor(wanted + 0.5) if options.stopping == "ct2" else round(wanted)
        self._pool = max(1, pool)
        self._stop = _STOPPING_RULES[options.stopping]
        self.scores_first = options.stopping == "hf"
        self.done = False
        self.found: list[ScoredSequence] = []

    def advance(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        length = len(sequences[0].generated) + 1
        candidates = self._candidates(sequences, logits)
        survivors = self._stop(self, sequences, candidates, length)
        self.done = self.done or not survivors or length >= self._limit
        return survivors

    def ranked(self, sequences: Sequence[SequenceState]) -> list[ScoredSequence]:
        found = self.found
        if self._options.stopping == "openai" and len(found) < self._beams:
            rest = sorted(sequences, key=lambda sequence: -sequence.total)[
                : self._beams - len(found)
            ]
            found = [*found, *((self._score(sequence, ended=False), sequence) for sequence in rest)]
        return sorted(found, key=lambda each: -each[0])

    def _candidates(self, sequences: Sequence[SequenceState], logits: Tensor) -> list[Candidate]:
        """The likeliest ways to go on from all lanes, best first."""
        logprobs = logits if self.scores_first else logits.log_softmax(-1)
        whisper = self._options.stopping == "openai"
        # So many that beam_size of them go on, however many of the others end.
        width = max(2, 1 + len(self._options.eos_ids)) * self._beams
        best = logprobs.topk(min(self._beams + 1 if whisper else width, logprobs.shape[-1]))
        totals = torch.tensor([sequence.total for sequence in sequences], device=logits.device)
        # Summed in float32, as the three do: equal sums tie there too.
        sums = (best.values + totals[:, None]).tolist()
        found = [
            Candidate(parent, token, logprob, total)
            for parent, row in enumerate(zip(best.indices.tolist(), best.values.tolist(), sums,
                                             strict=True))
            for token, logprob, total in zip(*row, strict=True)
            if total > -torch.inf
        ]  # fmt: skip
        found.sort(key=lambda candidate: -candidate.total)
        return found if whisper else found[:width]

    def _ends(self, candidate: Candidate) -> bool:
        return candidate.token in self._options.eos_ids

    def _keep(self, sequences: Sequence[SequenceState], candidate: Candidate) -> None:
        sequence = sequences[candidate.parent].child(candidate, [])
        self.found.append((self._score(sequence, ended=self._ends(candidate)), sequence))

    def _score(self, sequence: SequenceState, *, ended: bool) -> float:
        options = self._options
        length = len(sequence.generated)
        return hypothesis_score(
            options.stopping, options.length_penalty, sequence.total, length, ended
        )

    def _hf(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        last = length >= self._limit
        for candidate in candidates[: self._beams]:
            if last or self._ends(candidate):
                self._keep(sequences, candidate)
        self.found = sorted(self.found, key=lambda found: -found[0])[: self._pool]
        if last:
            return []
        survivors = [candidate for candidate in candidates if not self._ends(candidate)][
            : self._beams
        ]
        if survivors and len(self.found) == self._pool:
            # What the best lane would be ranked by if it ended here.
            hope = hypothesis_score(
                "hf", self._options.length_penalty, survivors[0].total, length, ended=True
            )
            self.done = hope <= self.found[-1][0]
        return survivors

    def _openai(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        survivors: list[Candidate] = []
        for candidate in candidates:
            if not self._ends(candidate):
                survivors.append(candidate)
                if len(survivors) == self._beams:
                    break
            elif len(self.found) < self._pool:
                self._keep(sequences, candidate)
        self.done = len(self.found) >= self._pool
        return survivors

    def _ct2(
        self, sequences: Sequence[SequenceState], candidates: list[Candidate], length: int
    ) -> list[Candidate]:
        options, last = self._options, length >= self._limit
        for candidate in candidates[: self._beams]:
            if last or self._ends(candidate):
                self._keep(sequences, candidate)
        enough = self._pool
        if options.patience == 1 and options.length_penalty == 0:
            # Nothing can overtake a best lane that has ended.
            enough = (
                options.n_best if candidates and self._ends(candidates[0]) else len(self.found) + 1
            )
        self.done = len(self.found) >= enough
        if last:
            return []
        return [candidate for candidate in candidates if not self._ends(candidate)][: self._beams]


class _StoppingRule(Protocol):
    def __call__(
        self,
        search: BeamSearch,
        /,
        sequences: Sequence[SequenceState],
        candidates: list[Candidate],
        length: int,
    ) -> list[Candidate]:
        """Note what has ended, set `done`, and return what goes on."""
        ...


_STOPPING_RULES: dict[str, _StoppingRule] = {
    "hf": BeamSearch._hf,
    "openai": BeamSearch._openai,
    "ct2": BeamSearch._ct2,
}
