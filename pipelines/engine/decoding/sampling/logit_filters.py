"""Logit filters: limit or reweight the next token. Composable, applied in the order given.

A filter is frozen data. `bind` turns it into a function for one sequence, which keeps state of its
own and edits logits [vocab] in place, on their device. Its first call may come when tokens have
been generated already, as sequences of a beam search branch off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from pipelines.errors import OptionError, RequestError

BoundFilter = Callable[[Tensor, Sequence[int]], None]
"""Called with logits [vocab], which it edits in place, and the output ids so far."""


@runtime_checkable
class LogitFilter(Protocol):
    """Limits or reweights the next token."""

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        """Bind the filter to one sequence.

        Args:
            prompt: The token ids that the sequence starts from.
            vocab_size: Size of the vocabulary.
            device: Device of the logits.

        Returns:
            The function that edits the sequence's logits.

        Raises:
            RequestError: The filter names ids outside the vocabulary.
        """
        ...


def apply_filters(
    logit_filters: Sequence[LogitFilter],
    logits: Tensor,
    prompt: Sequence[int],
    generated: Sequence[int],
) -> Tensor:
    """Apply filters outside a running batch.

    Args:
        logit_filters: Applied in this order.
        logits: [vocab]; not changed.
        prompt: The token ids that the sequence starts from.
        generated: The output ids so far.

    Returns:
        The filtered logits [vocab].
    """
    edited = logits.clone()
    for logit_filter in logit_filters:
        logit_filter.bind(prompt, logits.shape[-1], logits.device)(edited, generated)
    return edited


@lru_cache(maxsize=256)
def _index(ids: tuple[int, ...], vocab_size: int, device: torch.device) -> Tensor:
    """Ids as a tensor; the same object for equal ids, so that a batch can tell shared filters."""
    check_ids(ids, vocab_size)
    return torch.tensor(ids, dtype=torch.long, device=device)


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise RequestError for ids of a logit filter outside the vocabulary."""
    outside = [i for i in ids if not 0 <= i < vocab_size]
    if outside:
        raise RequestError(
            f"a logit filter names ids outside the vocabulary of {vocab_size}: {outside[:5]}"
        )


@dataclass(frozen=True)
class SuppressTokens:
    """These ids are never chosen."""

    ids: tuple[int, ...]

    def index(self, vocab_size: int, device: torch.device) -> Tensor:
        """The ids as a tensor; a batch suppresses ids that all its requests share at once."""
        return _index(self.ids, vocab_size, device)

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = self.index(vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            logits.index_fill_(0, index, -torch.inf)

        return bound


@dataclass(frozen=True)
class SuppressAtBegin:
    """These ids are not chosen as the first token after the prompt."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = _index(self.ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if not generated:
                logits.index_fill_(0, index, -torch.inf)

        return bound


@dataclass(frozen=True)
class AllowOnlyTokens:
    """Only these ids are chosen."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        forbidden = torch.ones(vocab_size, dtype=torch.bool, device=device)
        forbidden[_index(self.ids, vocab_size, device)] = False

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            logits.masked_fill_(forbidden, -torch.inf)

        return bound


@dataclass(frozen=True)
class ForcedPrefix:
    """The output begins with exactly these ids."""

    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        _index(self.ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) < len(self.ids):
                # The logit becomes 0: finite even where an earlier filter has set it to −∞.
                logits.fill_(-torch.inf)
                logits[self.ids[len(generated)]] = 0.0

        return bound


@dataclass(frozen=True)
class ForcedEnd:
    """After `count` tokens, only one of `ids` is chosen: the end of an output at its longest."""

    count: int
    ids: tuple[int, ...]

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        index = _index(self.ids, vocab_size, device)

        def bound(logits: Tensor, generated: Sequence[int]) -> None:
            if len(generated) >= self.count:
                # The logits become 0, as in ForcedPrefix.
                logits.fill_(-torch.inf)
                logits.index_fill_(0, index, 0.0)

        return bound


@dataclass(frozen=True)
class MinNewTokens:
    """None of `eos_ids` is chosen before `count` tokens have been generated."""

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
    """No n-gram of `size` tokens occurs twice in prompt and output (Paulus et al. 2017).

    Attributes:
        size: Tokens of an n-gram.
        in_prompt: The prompt counts, as in transformers; False: the output only, as in CTranslate2.
    """

    size: int
    in_prompt: bool = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise OptionError(f"an n-gram needs at least 1 token, not {self.size}")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        followers: dict[tuple[int, ...], list[int]] = {}
        prompt = prompt if self.in_prompt else ()
        sequence = list(prompt)
        context = self.size - 1
        indexed = 0  # n-grams that start before this position are in `followers`

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
    """Reweights tokens that occur in prompt or output (Keskar et al. 2019).

    Their positive logits are divided by `penalty`, negative ones multiplied; above 1 it makes
    repetition less likely.

    Attributes:
        penalty: 1 is none.
        in_prompt: As in NoRepeatNgram.
    """

    penalty: float
    in_prompt: bool = True

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise OptionError(f"repetition penalty must be above 0, not {self.penalty}")

    def bind(self, prompt: Sequence[int], vocab_size: int, device: torch.device) -> BoundFilter:
        seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        seen[list(prompt) if self.in_prompt else []] = True
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
    """None of these token sequences occurs in the output."""

    sequences: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise OptionError("a bad word needs at least 1 token")

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
