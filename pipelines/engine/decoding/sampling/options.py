"""How tokens are chosen: sampling, beam search and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from pipelines.errors import OptionError

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from pipelines.engine.decoding.sampling.logit_filters import LogitFilter

StoppingRule = Literal["hf", "openai", "ct2"]
"""The implementation whose beam search and ranking are followed."""


class OwnSampling(Protocol):
    """A distribution of a caller's own, as a subclass of LogitsProcessor defines it.

    Attributes:
        overrides_sample: It draws in its own way too, so that a drafted token is accepted when the
            same token is drawn.
    """

    @property
    def overrides_sample(self) -> bool: ...

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities for logits [..., vocab], of the same shape."""
        ...

    def draw(self, probabilities: Tensor, generator: Generator) -> Tensor:
        """Draw ids [..., 1] from probabilities [..., vocab]."""
        ...


@dataclass(frozen=True)
class GenerationOptions:
    """How tokens are chosen, and when a generation ends.

    Attributes:
        max_new_tokens: Limit of tokens after the prompt, eos included; 0 generates none.
        eos_ids: Any of these ends the generation; may be empty.
        temperature: 0 is greedy; otherwise the logits are divided by it before sampling.
        top_k: Keep the k most probable tokens when sampling (0 = off).
        top_p: Then keep the smallest set that holds this much probability (1 = off).
        min_p: Then keep tokens with at least this share of the best token's probability (0 = off).
        top_a: Then keep tokens with at least this share of (the best token's probability to the
            power of `top_a_pow`) (0 = off).
        top_a_pow: See `top_a`.
        processor: A caller's own distribution, or own way to draw from it, in place of the fields
            from `temperature` to `top_a_pow`.
        best_of: Samples drawn in parallel, of which the most probable is the result; above 1 it
            needs a temperature.
        beam_size: Above 1, the number of beams of a beam search, which needs temperature 0.
        stopping: The implementation whose beam search is followed: "hf" is transformers',
            "openai" that of OpenAI's reference implementation of speech recognition, "ct2"
            CTranslate2's. See sampling/beam_search.py.
        patience: Scales how many hypotheses the search collects (Kasai et al. 2022).
        length_penalty: Weight of the length in the ranking; None is the default of the stopping
            rule, log-probability over length.
        n_best: How many hypotheses are reported.
        seed: Makes sampling repeatable, independently of the other requests in the batch.
        logit_filters: Applied to the logits in this order, before the choice.
        logprobs: Report the log-probability of each chosen token, after the filters and at
            temperature 1.

    Raises:
        OptionError: A value is out of range, or two contradict each other.
    """

    max_new_tokens: int
    eos_ids: tuple[int, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    top_a: float = 0.0
    top_a_pow: float = 2.0
    processor: OwnSampling | None = None
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
        if not 0.0 <= self.top_a <= 1.0:
            raise OptionError(f"top_a must be between 0 (off) and 1, not {self.top_a}")
        if not 0.0 < self.top_a_pow < float("inf"):
            raise OptionError(f"top_a_pow must be above 0, not {self.top_a_pow}")
        self._check_search()

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn from a distribution."""
        return self.temperature > 0 or self.processor is not None

    @property
    def max_sequences(self) -> int:
        """How many sequences of a batch the generation takes at most."""
        return max(self.beam_size, self.best_of)

    def _check_search(self) -> None:
        for name in ("beam_size", "best_of", "n_best"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.beam_size > 1 and self.processor is not None:
            raise OptionError("beam_size above 1 takes no logits processor of your own")
        if self.beam_size > 1 and self.temperature > 0:
            raise OptionError("beam_size above 1 needs temperature 0; to sample, use best_of")
        if self.best_of > 1 and not self.samples:
            raise OptionError("best_of above 1 needs a temperature above 0")
        if self.n_best > self.max_sequences:
            raise OptionError(
                f"n_best {self.n_best} needs at least as many beams or samples, not "
                f"{self.max_sequences}"
            )
        if self.stopping not in get_args(StoppingRule):
            raise OptionError(f"stopping {self.stopping!r} is not one of hf, openai, ct2")
        if not 0.0 < self.patience < float("inf"):
            raise OptionError(f"patience must be above 0, not {self.patience}")
