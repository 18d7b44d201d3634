"""How tokens are chosen: sampling, beam search and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pipelines.errors import OptionError

if TYPE_CHECKING:
    from pipelines.engine.decoding.sampling.logit_filters import LogitFilter

__all__ = ["GenerationOptions", "StoppingRule"]

StoppingRule = Literal["hf", "openai", "ct2"]


@dataclass(frozen=True)
class GenerationOptions:
    """How to choose tokens.

    max_new_tokens: at most this many tokens after the prompt (eos counts); 0 generates nothing.
    eos_ids: any of these ends the generation; may be empty.
    temperature: 0 is greedy; otherwise logits are divided by it before sampling.
    top_k: keep the k most probable tokens (0 = off). top_p: then the smallest set that holds
        this much probability (1 = off). min_p: then what has at least this share of the best
        token's probability (0 = off). They only matter when sampling.
    best_of: sample so many times side by side and take the likeliest; needs a temperature.
    beam_size: above 1, beam search with so many beams; needs temperature 0.
    stopping: whose beam search it is: transformers' ("hf"), openai-whisper's or CTranslate2's;
        see beam.py. patience: scales how many hypotheses that rule collects (Kasai et al. 2022).
    length_penalty: how much length counts in the ranking; None is the rule's own default: log-
        probability over length. n_best: how many hypotheses are reported.
    seed: makes sampling repeatable, whatever else is in the batch.
    rules: applied to the logits in this order, before the choice (see rules.py).
    logprobs: also report the log-probability of each chosen token, after the rules,
        at temperature 1 (as openai-whisper does).

    Raises OptionError for values out of range.
    """

    max_new_tokens: int
    eos_ids: tuple[int, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    best_of: int = 1
    beam_size: int = 1
    stopping: StoppingRule = "hf"
    patience: float = 1.0
    length_penalty: float | None = None
    n_best: int = 1
    seed: int | None = None
    logit_filters: tuple[LogitFilter, ...] = ()
    logprobs: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 0:
            raise OptionError(f"max_new_tokens must be 0 or more, not {self.max_new_tokens}")
        if not 0.0 <= self.temperature < float("inf"):
            raise OptionError(f"temperature must be 0 (greedy) or more, not {self.temperature}")
        if self.top_k < 0:
            raise OptionError(f"top_k must be 0 (off) or more, not {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise OptionError(f"top_p must be above 0 and at most 1 (off), not {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise OptionError(f"min_p must be between 0 (off) and 1, not {self.min_p}")
        self._check_search()

    @property
    def width(self) -> int:
        """How many lanes of a batch this takes at most."""
        return max(self.beam_size, self.best_of)

    def _check_search(self) -> None:
        for name in ("beam_size", "best_of", "n_best"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.beam_size > 1 and self.temperature > 0:
            raise OptionError("beam_size above 1 needs temperature 0; to sample, use best_of")
        if self.best_of > 1 and self.temperature == 0:
            raise OptionError("best_of above 1 needs a temperature above 0")
        if self.n_best > self.width:
            raise OptionError(
                f"n_best {self.n_best} needs at least as many beams or samples, not {self.width}"
            )
        if self.stopping not in get_args(StoppingRule):
            raise OptionError(f"stopping {self.stopping!r} is not one of hf, openai, ct2")
        if not 0.0 < self.patience < float("inf"):
            raise OptionError(f"patience must be above 0, not {self.patience}")
