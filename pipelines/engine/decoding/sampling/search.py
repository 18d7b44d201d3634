"""Generations that follow several lanes at once, and the ranking of what they end with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pipelines.engine.decoding.request import GenerationOptions, StoppingRule
from pipelines.engine.decoding.sampling.distributions import distribution, draw
from pipelines.engine.decoding.sampling.sequence_state import Choice, Lane

__all__ = ["Found", "SampleSearch", "Search", "score_of"]

Found = tuple[float, Lane]
"""(score, an ended hypothesis)"""


class Search(Protocol):
    """Decides which lanes a generation goes on with.

    scores_first: the rules work on log-probabilities of the bare logits, which are not
    normalised again. each_goes_on: every lane has to find a token, not just one of them.
    found: what has ended so far; done: nothing further is to come.
    """

    scores_first: bool
    each_goes_on: bool
    done: bool
    found: list[Found]

    def advance(self, lanes: Sequence[Lane], logits: Tensor) -> list[Choice]:
        """The lanes to go on with, from logits [lanes, vocab] after the rules."""
        ...

    def ranked(self, lanes: Sequence[Lane]) -> list[Found]:
        """The hypotheses, best first; `lanes` are those of the last step."""
        ...


def score_of(
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


class SampleSearch:
    """Best of n: as many samples side by side, the likeliest of which is the result.

    Ranked as openai-whisper ranks them: by log-probability over length, at temperature 1 and
    after the rules.
    """

    scores_first, each_goes_on = False, True

    def __init__(self, options: GenerationOptions, limit: int, generator: torch.Generator) -> None:
        self._options, self._limit, self.generator = options, limit, generator
        self.done = False
        self.found: list[Found] = []

    def advance(self, lanes: Sequence[Lane], logits: Tensor) -> list[Choice]:
        options, choices = self._options, []
        parents = [0] * options.best_of if not lanes[0].generated else range(len(lanes))
        logprobs = logits.log_softmax(-1)
        for parent in parents:
            chances = distribution(
                logits[parent], options.temperature, options.top_k, options.top_p, options.min_p
            )
            token = int(draw(chances, self.generator))
            logprob = float(logprobs[parent, token])
            choice = Choice(parent, token, logprob, lanes[parent].total + logprob)
            ended = token in options.eos_ids
            if not ended and len(lanes[parent].generated) + 1 < self._limit:
                choices.append(choice)
                continue
            lane = lanes[parent].child(choice, [])
            score = score_of(
                "openai", options.length_penalty, lane.total, len(lane.generated), ended
            )
            self.found.append((score, lane))
        self.done = not choices
        return choices

    def ranked(self, lanes: Sequence[Lane]) -> list[Found]:
        return sorted(self.found, key=lambda found: -found[0])
