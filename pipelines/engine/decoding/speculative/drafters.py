"""Drafters: cheap proposals for the next tokens, which the model verifies in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.engine.decoding.request import DraftSession, Proposal
from pipelines.errors import OptionError, RequestError

if TYPE_CHECKING:
    from pipelines.engine.decoding.sampling.options import GenerationOptions


class AdaptiveSession(DraftSession):
    """A session that proposes a fixed number of tokens at once, or an adaptive one.

    The adaptive number grows by 2 when a whole proposal was accepted and shrinks by 1 otherwise,
    as in transformers' assisted generation.
    """

    def __init__(self, gamma: int, adaptive: bool, pauses: bool) -> None:
        self.gamma, self._adaptive, self._max_gamma = gamma, adaptive, 4 * gamma
        self.pauses = pauses

    def on_verified(self, proposed: int, accepted: int) -> None:
        """Adapt to how many tokens of the last proposal were accepted."""
        if self._adaptive and proposed:
            gamma = self.gamma + 2 if accepted == proposed else self.gamma - 1
            self.gamma = max(1, min(gamma, self._max_gamma))


class NgramStore:
    """Counts which tokens follow which n-grams.

    Can be shared by many requests, which then learn from each other.

    Args:
        longest: Tokens in the longest n-gram.
        shortest: Tokens in the shortest one. Short ones are followed by many different tokens.
        capacity: At most so many n-grams are kept; the oldest are dropped first.

    Raises:
        OptionError: `shortest` or `capacity` is below 1, or `longest` below `shortest`.
    """

    def __init__(self, longest: int = 3, shortest: int = 1, capacity: int = 1_000_000) -> None:
        if not 1 <= shortest <= longest:
            raise OptionError(
                f"an n-gram store needs n-grams of at least 1 token, not {shortest} to {longest}"
            )
        if capacity < 1:
            raise OptionError(f"an n-gram store holds at least 1 n-gram, not {capacity}")
        self.longest, self._shortest, self._capacity = longest, shortest, capacity
        self._followers: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, tokens: Sequence[int], start: int = 0) -> None:
        """Count the n-grams of a sequence whose following token is at position `start` or later."""
        for end in range(max(start, 1), len(tokens)):
            for size in range(self._shortest, min(self.longest, end) + 1):
                ngram = tuple(tokens[end - size : end])
                self._followers.setdefault(ngram, Counter())[tokens[end]] += 1
        while len(self._followers) > self._capacity:
            del self._followers[next(iter(self._followers))]

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """Up to `count` likely next tokens, each after the longest known n-gram; perhaps none."""
        recent, guesses = list(tokens[-self.longest :]), list[int]()
        while len(guesses) < count:
            ngrams = (tuple(recent[i:]) for i in range(len(recent)))
            followers = next((f for ngram in ngrams if (f := self._followers.get(ngram))), None)
            if followers is None:
                break
            guesses.append(followers.most_common(1)[0][0])
            recent = [*recent, guesses[-1]][-self.longest :]
        return guesses


@dataclass(frozen=True, eq=False)
class NgramDrafter:
    """Proposes the continuations of n-grams seen before.

    Attributes:
        store: Counts shared with other requests. None: those of this request's source, prompt and
            output only.
        source: Token ids to learn from in advance, such as the source of a translation.
        gamma: How many tokens to propose at once.
        adaptive: Propose more tokens after success and fewer after failure.
        pauses: Propose none while drafting takes longer than it saves, by the time of steps.

    Raises:
        OptionError: `gamma` is below 1.
    """

    store: NgramStore | None = None
    source: tuple[int, ...] = ()
    gamma: int = 4
    adaptive: bool = False
    pauses: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def check(self, vocab_size: int) -> None:
        """Raise RequestError if the source holds ids outside the vocabulary."""
        outside = [token for token in self.source if not 0 <= token < vocab_size]
        if outside:
            raise RequestError(
                f"the source of an n-gram drafter holds {outside[0]}, outside the vocabulary of "
                f"{vocab_size}"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        """Start to draft for one request."""
        store = self.store or NgramStore()
        store.learn(self.source)
        return _NgramSession(store, self)


class _NgramSession(AdaptiveSession):
    def __init__(self, store: NgramStore, drafter: NgramDrafter) -> None:
        super().__init__(drafter.gamma, drafter.adaptive, drafter.pauses)
        self._store, self._num_learned = store, 0

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        self._store.learn(sequence, self._num_learned)
        self._num_learned = len(sequence)
        return Proposal(self._store.guess(sequence, min(self.gamma, most)))


def check_gamma(gamma: int) -> None:
    """Raise OptionError for a draft without tokens."""
    if gamma < 1:
        raise OptionError(f"gamma must be 1 or more, not {gamma}")
