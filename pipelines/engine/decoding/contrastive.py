"""Contrastive decoding: what an expert model prefers more than a weaker amateur does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.logit_filters import BoundFilter
from pipelines.engine.decoding.speculative.model_drafter import DraftModel
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.errors import OptionError, RequestError


@dataclass(frozen=True, eq=False)
class ContrastiveFilter:
    """Replaces an expert's logits by (1 + beta) × expert − beta × amateur.

    Tokens whose probability is below `alpha` times that of the expert's best are not chosen (Li et
    al. 2022; the formula is O'Brien and Lewis 2023's, as in x-transformers). For use in any search,
    with and without drafts. Each sequence has a cache of the amateur of its own.

    Attributes:
        model: The amateur, of the same vocabulary as the expert.
        encoded: The request's source, encoded by the amateur.
        alpha: Above 0, at most 1.
        beta: Weight of the amateur, 0 or more.

    Raises:
        OptionError: `alpha` or `beta` is out of its range.
        RequestError: `encoded` was encoded by another model.
    """

    model: DraftModel
    encoded: EncodedSource
    alpha: float = 0.1
    beta: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise OptionError(f"alpha must be above 0 and at most 1, not {self.alpha}")
        if not 0 <= self.beta < math.inf:
            raise OptionError(f"beta must be 0 or more, not {self.beta}")
        if not self.model.owns(self.encoded):
            raise RequestError("the source of an amateur was encoded by another model")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        backend = self.model.backend
        if backend.architecture.vocab_size != vocab_size:
            raise RequestError(
                f"{backend.folder.name} has a vocabulary of {backend.architecture.vocab_size}, its "
                f"expert one of {vocab_size}; they must be the same"
            )
        encoded = self.encoded.to(backend.plan.device, backend.source_dtype)
        caches = backend.caches()
        caches.add_source(encoded)
        begun, read = list(prompt), list[int]()  # read: the tokens in the cache

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            tokens = [*begun, *generated]
            same = next((i for i, (a, b) in enumerate(zip(read, tokens, strict=False)) if a != b),
                        min(len(read), len(tokens)))  # fmt: skip
            same = min(same, len(tokens) - 1)  # the last token is read again: its logits are needed
            caches.tokens.truncate(0, same)
            unread = tokens[same:]
            hidden = caches.decode([unread], slice(0, 1), [encoded])
            caches.tokens.advance(slice(0, 1), len(unread))
            read[:] = tokens
            amateur = backend.logits(hidden[0, -1:])[0].to(logits.device)
            allowed = logits >= logits.max() + math.log(self.alpha)
            contrast = (1 + self.beta) * logits - self.beta * amateur
            logits.copy_(contrast.masked_fill(~allowed | logits.isneginf(), -torch.inf))

        return bound
