"""Logits rules: what may be chosen next. Small, composable, applied in the order given.

A rule is plain frozen data; `bind` turns it into a function for one generation, which keeps
whatever it needs to remember and edits one row of logits in place, on its device. Its first call
may come when tokens have been generated already: lanes of a beam search branch off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from pipelines.errors import OptionError, RequestError

__all__ = [
    "BadWords",
    "BoundFilter",
    "ForcedPrefix",
    "MinNewTokens",
    "NoRepeatNgram",
    "AllowOnlyTokens",
    "RepetitionPenalty",
    "LogitFilter",
    "SuppressTokens",
    "SuppressAtBegin",
    "apply_filters",
]

BoundFilter = Callable[[Tensor, Sequence[int]], None]
"""(logits [vocab], tokens generated so far) → edits the logits."""


@runtime_checkable
class LogitFilter(Protocol):
    """Something that limits the next token."""

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        """The rule for one generation that starts from `prompt`.

        Raises RequestError when the rule names ids outside the vocabulary.
        """
        ...


def apply_filters(
    logit_filters: Sequence[LogitFilter],
    logits: Tensor,
    prompt: Sequence[int],
    generated: Sequence[int],
) -> Tensor:
    """A copy of `logits` [vocab] after all rules; for use outside a running batch."""
    edited = logits.clone()
    for logit_filter in logit_filters:
        logit_filter.bind(prompt, logits.shape[-1], logits.device)(edited, generated)
    return edited


@lru_cache(maxsize=256)
def _index(ids: tuple[int, ...], vocab_size: int, device: torch.device) -> Tensor:
    """Ids as a tensor, one object for equal ids, so that rows with the same rule share a step."""
    outside = [i for i in ids if not 0 <= i < vocab_size]
    if outside:
        raise RequestError(
            f"a rule names ids outside the vocabulary of {vocab_size}: {outside[:5]}"
        )
    return torch.tensor(ids, dtype=torch.long, device=device)


@dataclass(frozen=True)
class SuppressTokens:
    """These ids are never chosen."""

    ids: tuple[int, ...]

    def index(self, vocab_size: int, device: torch.device) -> Tensor:
        """The ids as a tensor; a batch applies it to all rows that share it at once."""
        return _index(self.ids, vocab_size, device)

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = self.index(vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            logits.index_fill_(0, index, -torch.inf)

        return bound


@dataclass(frozen=True)
class SuppressAtBegin:
    """These ids are not chosen as the first new token."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = _index(self.ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if not generated:
                logits.index_fill_(0, index, -torch.inf)

        return bound


@dataclass(frozen=True)
class AllowOnlyTokens:
    """Nothing but these ids."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        forbidden = torch.ones(vocab_size, dtype=torch.bool, device=device)
        forbidden[_index(self.ids, vocab_size, device)] = False

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            logits.masked_fill_(forbidden, -torch.inf)

        return bound


@dataclass(frozen=True)
class ForcedPrefix:
    """The generation begins with exactly these ids."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        _index(self.ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) < len(self.ids):
                # Its logit becomes 0: finite even where an earlier rule had ruled it out.
                logits.fill_(-torch.inf)
                logits[self.ids[len(generated)]] = 0.0

        return bound


@dataclass(frozen=True)
class MinNewTokens:
    """None of `eos_ids` before `count` tokens have been generated."""

    count: int
    eos_ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = _index(self.eos_ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) < self.count:
                logits.index_fill_(0, index, -torch.inf)

        return bound


@dataclass(frozen=True)
class NoRepeatNgram:
    """No run of `size` tokens occurs twice in prompt and output (Paulus et al. 2017)."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise OptionError(f"an n-gram needs at least 1 token, not {self.size}")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        followers: dict[tuple[int, ...], list[int]] = {}
        sequence = list(prompt)
        context = self.size - 1
        indexed = 0  # n-grams that start before this are in `followers`

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            nonlocal indexed
            sequence.extend(generated[len(sequence) - len(prompt) :])
            while indexed + context < len(sequence):
                key = tuple(sequence[indexed : indexed + context])
                followers.setdefault(key, []).append(sequence[indexed + context])
                indexed += 1
            banned = followers.get(tuple(sequence[len(sequence) - context :]))
            if banned:
                logits[banned] = -torch.inf

        return bound


@dataclass(frozen=True)
class RepetitionPenalty:
    """Tokens already in prompt or output get less likely: positive logits are divided by
    `penalty`, negative ones multiplied (Keskar et al. 2019). Above 1 discourages."""

    penalty: float

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise OptionError(f"repetition penalty must be above 0, not {self.penalty}")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        seen[list(prompt)] = True
        counted = 0

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            nonlocal counted
            if counted < len(generated):
                seen[list(generated[counted:])] = True
                counted = len(generated)
            penalised = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
            torch.where(seen, penalised, logits, out=logits)

        return bound


@dataclass(frozen=True)
class BadWords:
    """None of these token sequences occurs in the output; a sequence of one is never chosen."""

    sequences: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise OptionError("a bad word is a sequence of at least one token")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        single = tuple(s[0] for s in self.sequences if len(s) == 1)
        longer = [(s[:-1], s[-1]) for s in self.sequences if len(s) > 1]
        _index(tuple(i for s in self.sequences for i in s), vocab_size, device)
        always = _index(single, vocab_size, device)
        longest = max((len(start) for start, _ in longer), default=0)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            logits.index_fill_(0, always, -torch.inf)
            if longest:
                recent = (*prompt[-longest:], *generated[-longest:])
                for start, last in longer:
                    if recent[-len(start) :] == start:
                        logits[last] = -torch.inf

        return bound
