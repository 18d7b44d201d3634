"""Sampling: from logits to a token drawn from the scaled and truncated distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.errors import EngineError


def generator_for(seed: int | None, device: torch.device) -> torch.Generator:
    """A random generator for one request, so that its draws do not depend on the batch."""
    generator = torch.Generator(device=device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def next_distribution(logits: Tensor, options: GenerationOptions) -> Tensor:
    """The distribution [vocab] that a request draws its next token from, by logits [vocab].

    The logits are not changed. The request's own processor decides if there is one.

    Raises:
        EngineError: The processor failed, or returned something else.
    """
    if options.processor is None:
        return token_distribution(
            logits,
            options.temperature,
            options.top_k,
            options.top_p,
            options.min_p,
            options.top_a,
            options.top_a_pow,
        )
    try:
        probabilities = options.processor(logits.clone()[None])
    except Exception as error:  # a caller's own may raise; the other requests continue
        raise EngineError(f"a logits processor failed: {error!r}") from error
    total = float(probabilities.sum()) if probabilities.shape == (1, len(logits)) else 0.0
    if not 0 < total < float("inf") or bool((probabilities < 0).any()):
        raise EngineError(
            "a logits processor has to return probabilities of the shape of the logits, "
            f"{[1, len(logits)]}"
        )
    return probabilities[0] / total


def draw(probabilities: Tensor, options: GenerationOptions, generator: torch.Generator) -> int:
    """Draw a token id from probabilities [vocab], in the way of the request's own processor.

    Raises:
        EngineError: The processor failed, or drew no id.
    """
    if options.processor is None or not options.processor.overrides_sample:
        return int(sample_from(probabilities, generator))
    try:
        token = int(options.processor.draw(probabilities.clone()[None], generator))
    except Exception as error:  # a caller's own may raise; the other requests continue
        raise EngineError(f"a logits processor failed: {error!r}") from error
    if not 0 <= token < len(probabilities):
        raise EngineError(f"a logits processor drew {token}, outside the vocabulary")
    return token


def token_distribution(
    logits: Tensor,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    top_a: float = 0.0,
    top_a_pow: float = 2.0,
) -> Tensor:
    """The distribution [vocab] that a token is drawn from, by logits [vocab], which do not change.

    The temperature is above 0; the rest is as in GenerationOptions, in the order of its fields.
    """
    if 0 < top_k < logits.shape[-1]:
        # The rest works on k numbers instead of the whole vocabulary.
        best, indices = logits.topk(top_k)
        probs = token_distribution(best, temperature, 0, top_p, min_p, top_a, top_a_pow)
        return torch.zeros_like(logits).scatter_(0, indices, probs)
    probabilities = (logits / temperature).softmax(-1)
    if top_p < 1.0:  # Holtzman et al. 2020
        ranked, order = probabilities.sort(descending=True)
        # Drop a token if the more probable ones already hold top_p.
        before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(before >= top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter_(0, order, ranked)
        probabilities /= probabilities.sum()
    if min_p > 0.0:  # Nguyen et al. 2024
        probabilities = probabilities.masked_fill(probabilities < min_p * probabilities.max(), 0.0)
        probabilities /= probabilities.sum()
    if top_a > 0.0:  # as x-transformers
        limit = top_a * probabilities.max() ** top_a_pow
        probabilities = probabilities.masked_fill(probabilities < limit, 0.0)
        probabilities /= probabilities.sum()
    return probabilities


def sample_from(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a token id, a tensor of one element, from probabilities [vocab]."""
    return torch.multinomial(probabilities, 1, generator=generator)
