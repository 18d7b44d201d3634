"""Drafters: cheap guesses at the next tokens, which the model then verifies in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from pipelines.engine.decoding.rules import Suppress
from pipelines.engine.decoding.sampling import distribution, draw, generator_for
from pipelines.errors import OptionError, RequestError

if TYPE_CHECKING:
    from pipelines.engine.decoding.request import GenerationOptions
    from pipelines.engine.loaded import Model
    from pipelines.engine.model.backend import Backend
    from pipelines.engine.model.memory import Memory

__all__ = ["Drafter", "Drafting", "ModelDrafter", "NgramDrafter", "NgramStore", "Proposal"]


@dataclass(frozen=True, eq=False)
class Proposal:
    """Guessed tokens; chances [tokens, vocab] is what each was drawn from, None for guesses that
    were not drawn by chance."""

    tokens: list[int]
    chances: Tensor | None = None


class Drafting(Protocol):
    """A drafter at work on one generation."""

    gamma: int

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        """At most so many guesses at what follows `sequence`, prompt and output."""
        ...

    def judged(self, proposed: int, accepted: int) -> None:
        """How many of the last guesses were right."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Something that drafts; a request names it."""

    def check(self, vocab_size: int) -> None:
        """Raises RequestError when it cannot draft for a model of this vocabulary."""
        ...

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> Drafting:
        """For one generation."""
        ...


class _Length:
    """How many tokens to guess at once: always gamma, or more after success and fewer after
    failure, as transformers' assisted generation does."""

    def __init__(self, gamma: int, adaptive: bool) -> None:
        self.gamma, self._adaptive, self._most = gamma, adaptive, 4 * gamma

    def judged(self, proposed: int, accepted: int) -> None:
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
        _check_gamma(self.gamma)

    def check(self, vocab_size: int) -> None:
        outside = [token for token in self.source if not 0 <= token < vocab_size]
        if outside:
            raise RequestError(
                f"the source of an n-gram drafter holds {outside[0]}, outside the vocabulary of "
                f"{vocab_size}"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> Drafting:
        store = self.store or NgramStore()
        store.learn(self.source)
        return _NgramDrafting(store, self.gamma, self.adaptive)


class _NgramDrafting(_Length):
    def __init__(self, store: NgramStore, gamma: int, adaptive: bool) -> None:
        super().__init__(gamma, adaptive)
        self._store, self._learned = store, 0

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        self._store.learn(sequence, self._learned)
        self._learned = len(sequence)
        return Proposal(self._store.guess(sequence, min(self.gamma, most)))


@dataclass(frozen=True, eq=False)
class ModelDrafter:
    """A smaller model of the same vocabulary, under the same rules and sampling.

    memory: the source as this model has encoded it. gamma, adaptive: as in NgramDrafter.
    """

    model: Model
    memory: Memory
    gamma: int = 4
    adaptive: bool = False

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        if not self.model.owns(self.memory):
            raise RequestError("the memory of a drafter was made by another model")

    def check(self, vocab_size: int) -> None:
        own = self.model.architecture.vocab_size
        if own != vocab_size:
            raise RequestError(
                f"{self.model.folder.name} has a vocabulary of {own}, the model it should draft "
                f"for one of {vocab_size}; they must be the same"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> Drafting:
        return _ModelDrafting(self.model.backend, self, tuple(prompt), options)


class _ModelDrafting(_Length):
    """Keeps a cache of its own, and cuts it back to what still holds of it."""

    def __init__(
        self,
        backend: Backend,
        drafter: ModelDrafter,
        prompt: tuple[int, ...],
        options: GenerationOptions,
    ) -> None:
        super().__init__(drafter.gamma, drafter.adaptive)
        self._backend, self._prompt, self._options = backend, prompt, options
        self._memory = drafter.memory.to(backend.plan.device, backend.memory_dtype)
        self._cache, self._cross = backend.caches()
        self._cache.alloc()
        slot = self._cross.alloc()
        if backend.architecture.source == "tokens":
            self._cross.store(slot, self._memory)
        self._read: list[int] = []
        # Another stream of chance than the target's, or it would draw what the target will draw.
        seed = None if options.seed is None else options.seed ^ 0x5DEECE66D
        self._generator = generator_for(seed, backend.plan.device)

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        vocab, device = self._backend.architecture.vocab_size, self._backend.plan.device
        room = self._backend.architecture.max_target_positions - len(sequence)
        rules = [
            rule.bind(self._prompt, vocab, device)
            for rule in sorted(self._options.rules, key=lambda r: not isinstance(r, Suppress))
        ]
        tokens, chances = list(sequence), list[Tensor]()
        for _ in range(max(0, min(self.gamma, most, room))):
            logits = self._next(tokens)
            for rule in rules:
                rule(logits, tokens[len(self._prompt) :])
            if not torch.isfinite(logits.max()):
                break
            tokens.append(self._choose(logits, chances))
            if tokens[-1] in self._options.eos_ids:
                break
        return Proposal(tokens[len(sequence) :], torch.stack(chances) if chances else None)

    def _choose(self, logits: Tensor, chances: list[Tensor]) -> int:
        options = self._options
        if not options.temperature:
            return int(logits.argmax())
        chances.append(
            distribution(logits, options.temperature, options.top_k, options.top_p, options.min_p)
        )
        return int(draw(chances[-1], self._generator))

    def _next(self, tokens: list[int]) -> Tensor:
        """Logits [vocab] after tokens, of which the longest beginning in the cache is kept."""
        same = 0
        for mine, given in zip(self._read, tokens[:-1], strict=False):
            if mine != given:
                break
            same += 1
        self._cache.truncate(0, same)
        new = tokens[same:]
        hidden = self._backend.decode([new], slice(0, 1), [self._memory], self._cache, self._cross)
        self._cache.advance(slice(0, 1), len(new))
        self._read = list(tokens)
        return self._backend.logits(hidden[0, -1:])[0]


def _check_gamma(gamma: int) -> None:
    if gamma < 1:
        raise OptionError(f"gamma must be 1 or more, not {gamma}")
