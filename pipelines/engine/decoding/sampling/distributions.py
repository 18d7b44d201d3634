"""Sampling: from logits to a token drawn from the scaled and truncated distribution."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["token_distribution", "sample_from", "generator_for"]


def generator_for(seed: int | None, device: torch.device) -> torch.Generator:
    """A random generator for one request, so that its draws do not depend on the batch."""
    generator = torch.Generator(device=device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def token_distribution(
    logits: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Tensor:
    """The distribution that a token is drawn from.

    Args:
        logits: [vocab]; not changed.
        temperature: Above 0; the logits are divided by it.
        top_k: Keep the k most probable tokens (0 = all).
        top_p: Then keep the smallest set of the most probable tokens that holds at least this
            probability, at least one token (Holtzman et al. 2020).
        min_p: Then drop tokens with less than this share of the best one's probability (Nguyen et
            al. 2024).

    Returns:
        Probabilities [vocab].
    """
    if 0 < top_k < logits.shape[-1]:
        # The rest works on k numbers instead of the whole vocabulary.
        best, indices = logits.topk(top_k)
        probs = token_distribution(best, temperature, 0, top_p, min_p)
        return torch.zeros_like(logits).scatter_(0, indices, probs)
    probabilities = (logits / temperature).softmax(-1)
    if top_p < 1.0:
        ranked, order = probabilities.sort(descending=True)
        # Drop a token if the more probable ones already hold top_p.
        before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(before >= top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter_(0, order, ranked)
        probabilities /= probabilities.sum()
    if min_p > 0.0:
        probabilities = probabilities.masked_fill(probabilities < min_p * probabilities.max(), 0.0)
        probabilities /= probabilities.sum()
    return probabilities


def sample_from(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a token id, a tensor of one element, from probabilities [vocab]."""
    return torch.multinomial(probabilities, 1, generator=generator)
