"""A logit filter for phrases that an output has to contain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.engine.decoding.sampling.logit_filters import BoundFilter, check_ids
from pipelines.errors import OptionError

# The output ends without the missing phrases when none could begin, so many times.
_MAX_DELAYS = 3


@dataclass(frozen=True)
class ForcedPhrases:
    """Each of these token sequences occurs in the output, if its length allows.

    A phrase begins where its first token is nearly the best choice, at the latest where the output
    would end, and is then completed. It begins only where the filters before this one allow its
    first token. One phrase may occur inside another.

    Attributes:
        sequences: The phrases.
        eos_ids: End the output.
        share: A phrase begins where its first token has at least this share of the best token's
            probability.
    """

    sequences: tuple[tuple[int, ...], ...]
    eos_ids: tuple[int, ...]
    share: float = 0.1

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise OptionError("a forced phrase needs at least 1 token")
        if not 0 < self.share <= 1:
            raise OptionError(f"share must be above 0 and at most 1, not {self.share}")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        check_ids((*self.eos_ids, *(i for s in self.sequences for i in s)), vocab_size)
        eos = torch.tensor(self.eos_ids, dtype=torch.long, device=device)
        margin = math.log(self.share)
        delays = 0  # how often the end was put off

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            nonlocal delays
            missing = [s for s in self.sequences if not _contains(generated, s)]
            if not missing or delays > _MAX_DELAYS:
                return
            following = _following(generated, missing)
            if following is not None:
                _force(logits, following)
                return
            best = int(logits.argmax())
            ending = best in self.eos_ids
            delays += ending
            firsts = [s[0] for s in missing if logits[s[0]] > -torch.inf]
            near = [t for t in firsts if delays or logits[t] - logits[best] >= margin]
            if near:
                _force(logits, near[0])
                return
            without_end = logits.index_fill(0, eos, -torch.inf)
            if torch.isfinite(without_end).any():
                logits.copy_(without_end)

        return bound


def _force(logits: Tensor, token: int) -> None:
    logits.fill_(-torch.inf)
    logits[token] = 0.0


def _contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    size, wanted = len(phrase), list(phrase)
    return any(list(tokens[i : i + size]) == wanted for i in range(len(tokens) - size + 1))


def _following(tokens: Sequence[int], missing: Sequence[Sequence[int]]) -> int | None:
    """The next token of the phrase of which the longest beginning ends the tokens, or None."""
    ends = (
        (size, phrase[size])
        for phrase in missing
        for size in range(1, len(phrase))
        if list(tokens[-size:]) == list(phrase[:size])
    )
    return max(ends, default=(0, None), key=lambda end: end[0])[1]
