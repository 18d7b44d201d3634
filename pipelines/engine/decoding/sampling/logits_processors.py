"""Sampling methods under the names of romsto/Speculative-Decoding.

Frozen data: each turns logits into the distribution it samples from, and into GenerationOptions.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.distributions import next_distribution
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.errors import OptionError


@dataclass(frozen=True)
class LogitsProcessor:
    """Base class of the sampling methods.

    A subclass may override `_process`, which edits the logits, `__call__`, which returns the
    distribution, and `sample`, which draws from it. Generations follow it with a cache, without
    one, and with a drafter. All three are called with tensors of shape [..., vocab], which they
    may change: [1, vocab] when the engine calls.

    Attributes:
        temperature: The logits are divided by it; 0 is greedy, whatever the method.

    Raises:
        OptionError: A value is out of range.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        self.options(0)

    def options(
        self, max_new_tokens: int, eos_ids: tuple[int, ...] = (), seed: int | None = None
    ) -> GenerationOptions:
        """The engine's options for a generation with this method.

        Args:
            max_new_tokens: Limit of tokens after the prompt.
            eos_ids: Any of these ends the generation.
            seed: Makes the generation repeatable.
        """
        return GenerationOptions(
            max_new_tokens=max_new_tokens,
            eos_ids=eos_ids,
            **{field.name: getattr(self, field.name) for field in fields(self)},
            processor=self if self.overrides_sample or self._overrides_distribution else None,
            seed=seed,
        )

    @property
    def overrides_sample(self) -> bool:
        """Whether a subclass draws from the distribution in its own way."""
        return type(self).sample is not LogitsProcessor.sample

    @property
    def _overrides_distribution(self) -> bool:
        own, base = type(self), LogitsProcessor
        return own.__call__ is not base.__call__ or own._process is not base._process

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities for logits [..., vocab], of the same shape; the logits are not changed.

        The fields of the method, such as the temperature, are applied to what `_process` returns.
        """
        chosen = replace(self.options(0), processor=None)
        logits = self._process(logits.clone())
        if chosen.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        rows = [next_distribution(row, chosen) for row in logits.reshape(-1, logits.shape[-1])]
        return torch.stack(rows).view(logits.shape)

    def _process(self, logits: Tensor) -> Tensor:
        """Edit logits [..., vocab] before the temperature is applied; here they stay as they are.

        The logits are a copy.
        """
        return logits

    def draw(self, probabilities: Tensor, generator: torch.Generator) -> Tensor:
        """Call `sample`, which may be a subclass's own without a `generator`.

        A `sample` without one draws from torch's global generator, so that a seed of the request
        does not make it repeatable.
        """
        takes = inspect.signature(self.sample).parameters.values()
        if any(p.name == "generator" or p.kind is p.VAR_KEYWORD for p in takes):
            return self.sample(probabilities, generator=generator)
        return self.sample(probabilities)

    def sample(self, probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw ids [..., 1] from probabilities [..., vocab]."""
        rows = probabilities.reshape(-1, probabilities.shape[-1])
        drawn = torch.multinomial(rows, 1, generator=generator)
        return drawn.view(*probabilities.shape[:-1], 1)


@dataclass(frozen=True)
class GreedyProcessor(LogitsProcessor):
    """Always the most probable token."""

    temperature: float = 0.0

    def __post_init__(self) -> None:
        # The argmax is the same at any temperature.
        object.__setattr__(self, "temperature", 0.0)


@dataclass(frozen=True)
class MultinomialProcessor(LogitsProcessor):
    """Any token, with the model's probability."""


@dataclass(frozen=True)
class TopKProcessor(LogitsProcessor):
    """One of the `top_k` most probable tokens."""

    top_k: int = 50

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise OptionError(f"top_k must be 1 or more, not {self.top_k}")
        super().__post_init__()


@dataclass(frozen=True)
class NucleusProcessor(LogitsProcessor):
    """One of the smallest set of tokens that holds `top_p` of the probability (the nucleus)."""

    top_p: float = 0.9


@dataclass(frozen=True)
class TopKNucleusProcessor(LogitsProcessor):
    """One of the nucleus of the `top_k` most probable tokens."""

    top_k: int = 50
    top_p: float = 0.9


@dataclass(frozen=True)
class MinPProcessor(LogitsProcessor):
    """One of the tokens with at least `min_p` of the best token's probability."""

    min_p: float = 0.1


@dataclass(frozen=True)
class TopAProcessor(LogitsProcessor):
    """One of the tokens with at least `top_a` times the best one's probability to the power of
    `top_a_pow`: the surer the model, the fewer."""

    top_a: float = 0.02
    top_a_pow: float = 2.0
