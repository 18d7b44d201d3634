"""Drafters: cheap guesses at the next tokens, which the model then verifies in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

from pipelines.errors import OptionError, RequestError

if TYPE_CHECKING:
    from pipelines.engine.decoding.sampling.options import GenerationOptions

__all__ = [
    "Drafter",
    "DraftSession",
    "DraftLength",
    "NgramDrafter",
    "NgramStore",
    "Proposal",
    "check_gamma",
]


@dataclass(frozen=True, eq=False)
class Proposal:
    """Guessed tokens; chances [tokens, vocab] is what each was drawn from, None for guesses that
    were not drawn by chance."""

    tokens: list[int]
    probs: Tensor | None = None


class DraftSession(Protocol):
    """A drafter at work on one generation."""

    gamma: int

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        """At most so many guesses at what follows `sequence`, prompt and output."""
        ...

    def on_verified(self, proposed: int, accepted: int) -> None:
        """How many of the last guesses were right."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Something that drafts; a request names it."""

    def check(self, vocab_size: int) -> None:
        """Raises RequestError when it cannot draft for a model of this vocabulary."""
        ...

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        """For one generation."""
        ...


class DraftLength:
    """How many tokens to guess at once: always gamma, or more after success and fewer after
    failure, as transformers' assisted generation does."""

    def __init__(self, gamma: int, adaptive: bool) -> None:
        self.gamma, self._adaptive, self._most = gamma, adaptive, 4 * gamma

    def on_verified(self, proposed: int, accepted: int) -> None:
        """Adapt to how many of the last guesses were right."""
        if self._adaptive and proposed:
            grown = self.gamma + 2 if accepted == proposed else self.gamma - 1
            self.gamma = max(1, min(grown, self._most))


class NgramStore:
    """What has followed what: for runs of up to `longest` tokens, the tokens that came next.

    May serve many requests, which then learn from each other.
    """

    def __init__(self, longest: int = 3) -> None:
        if longest < 1:
            raise OptionError(f"an n-gram store needs runs of at least 1 token, not {longest}")
        self.longest = longest
        self._followers: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, tokens: Sequence[int], start: int = 0) -> None:
        """Take in a sequence; of it only what ends at position `start` or later."""
        for end in range(max(start, 1), len(tokens)):
            for size in range(1, min(self.longest, end) + 1):
                run = tuple(tokens[end - size : end])
                self._followers.setdefault(run, Counter())[tokens[end]] += 1

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """What will likely follow; nothing where nothing like it was seen."""
        recent, found = list(tokens[-self.longest :]), list[int]()
        while len(found) < count:
            runs = (tuple(recent[i:]) for i in range(len(recent)))
            followers = next((f for run in runs if (f := self._followers.get(run))), None)
            if followers is None:
                break
            found.append(followers.most_common(1)[0][0])
            recent = [*recent, found[-1]][-self.longest :]
        return found


@dataclass(frozen=True, eq=False)
class NgramDrafter:
    """Guesses from what was seen before: in `source`, in the output so far, and, with a `store`
    that others use too, in theirs.

    gamma: how many tokens at once. adaptive: more after success, fewer after failure.
    """

    store: NgramStore | None = None
    source: tuple[int, ...] = ()
    gamma: int = 4
    adaptive: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def check(self, vocab_size: int) -> None:
        outside = [token for token in self.source if not 0 <= token < vocab_size]
        if outside:
            raise RequestError(
                f"the source of an n-gram drafter holds {outside[0]}, outside the vocabulary of "
                f"{vocab_size}"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        store = self.store or NgramStore()
        store.learn(self.source)
        return _NgramSession(store, self.gamma, self.adaptive)


class _NgramSession(DraftLength):
    def __init__(self, store: NgramStore, gamma: int, adaptive: bool) -> None:
        super().__init__(gamma, adaptive)
        self._store, self._learned = store, 0

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        self._store.learn(sequence, self._learned)
        self._learned = len(sequence)
        return Proposal(self._store.guess(sequence, min(self.gamma, most)))


def check_gamma(gamma: int) -> None:
    """Raises OptionError for a draft without tokens."""
    if gamma < 1:
        raise OptionError(f"gamma must be 1 or more, not {gamma}")
