"""Drafting with a smaller model: all generations that it drafts for read in one pass a guess."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.decoding.memory_budget import cache_bytes_needed
from pipelines.engine.decoding.sampling.distributions import (
    generator_for,
    sample_from,
    token_distribution,
)
from pipelines.engine.decoding.sampling.logit_filters import SuppressTokens
from pipelines.engine.decoding.speculative.drafters import (
    DraftLength,
    DraftSession,
    Proposal,
    check_gamma,
)
from pipelines.engine.model.lm_head import argmax
from pipelines.errors import RequestError

if TYPE_CHECKING:
    from pipelines.engine.decoding.sampling.options import GenerationOptions
    from pipelines.engine.state.encoded_source import EncodedSource

__all__ = ["BatchedDraftModel", "DraftModel", "ModelDraftSession", "ModelDrafter"]

# A generation has one or two tokens to read before it can be drafted for: the last of its guesses,
# when all were right, and what was chosen after it. Who has more has just come.
_USUAL_UNREAD_TOKENS = 2


class DraftModel(Protocol):
    """What a drafter needs of a loaded model."""

    @property
    def backend(self) -> Backend:
        """Computes the drafts; used between the steps of the target only."""
        ...

    def owns(self, encoded: EncodedSource) -> bool:
        """Whether this model encoded the source, and so can read it."""
        ...


@dataclass(frozen=True, eq=False)
class ModelDrafter:
    """A smaller model of the same vocabulary, under the same rules and sampling.

    memory: the source as this model has encoded it. gamma, adaptive: as in NgramDrafter.
    """

    model: DraftModel
    encoded: EncodedSource
    gamma: int = 4
    adaptive: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        if not self.model.owns(self.encoded):
            raise RequestError("the memory of a drafter was made by another model")

    def check(self, vocab_size: int) -> None:
        backend = self.model.backend
        own = backend.architecture.vocab_size
        if own != vocab_size:
            raise RequestError(
                f"{backend.folder.name} has a vocabulary of {own}, the model it should draft "
                f"for one of {vocab_size}; they must be the same"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        return ModelDraftSession(self.model.backend, self, tuple(prompt), options)


class ModelDraftSession(DraftLength):
    """What a model needs to draft for one generation; its cache is shared with others."""

    def __init__(
        self,
        backend: Backend,
        drafter: ModelDrafter,
        prompt: tuple[int, ...],
        options: GenerationOptions,
    ) -> None:
        super().__init__(drafter.gamma, drafter.adaptive)
        self.backend, self.prompt, self.options = backend, prompt, options
        self.encoded = drafter.encoded.to(backend.plan.device, backend.source_dtype)
        # Another stream of chance than the target's, or it would draw what the target will draw.
        seed = None if options.seed is None else options.seed ^ 0x5DEECE66D
        self.generator = generator_for(seed, backend.plan.device)
        self._alone: BatchedDraftModel | None = None

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        """Without neighbours, for who keeps this drafting to itself."""
        self._alone = self._alone or BatchedDraftModel(self.backend)
        (found,) = self._alone.propose([(self, sequence, most)])
        if isinstance(found, Exception):
            raise found
        return found


class _DraftRound:
    """One generation in one round of guesses. tokens: its sequence, and the guesses so far."""

    def __init__(self, drafting: ModelDraftSession, slot: int, sequence: Sequence[int], most: int):
        backend = drafting.backend
        self.drafting, self.slot, self.tokens = drafting, slot, list(sequence)
        self._known = len(sequence)
        room = backend.architecture.max_target_positions - len(sequence)
        self.left = max(0, min(drafting.gamma, most, room))
        self._logit_filters = [
            logit_filter.bind(drafting.prompt, backend.architecture.vocab_size, backend.plan.device)
            for logit_filter in sorted(
                drafting.options.logit_filters, key=lambda r: not isinstance(r, SuppressTokens)
            )
        ]
        self._probs: list[Tensor] = []
        self._error: Exception | None = None

    def obey(self, logits: Tensor) -> None:
        """Apply the rules to logits [vocab]."""
        try:
            for logit_filter in self._logit_filters:
                logit_filter(logits, self.tokens[len(self.drafting.prompt) :])
        except Exception as error:  # a caller's own rule may do anything; its neighbours go on
            self._error, self.left = error, 0

    def choose(self, logits: Tensor, token: int, finite: bool) -> None:
        """Take the next guess: `token`, the likeliest, or one that is drawn from logits [vocab]."""
        if not finite:
            self.left = 0
        if not self.left:
            return
        options = self.drafting.options
        if options.temperature:
            probs = token_distribution(
                logits, options.temperature, options.top_k, options.top_p, options.min_p
            )
            self._probs.append(probs)
            token = int(sample_from(probs, self.drafting.generator))
        self.tokens.append(token)
        self.left = 0 if token in options.eos_ids else self.left - 1

    def result(self) -> Proposal | Exception:
        probs = torch.stack(self._probs) if self._probs else None
        return self._error or Proposal(self.tokens[self._known :], probs)


class BatchedDraftModel:
    """The generations that one model drafts for, side by side in one cache.

    They join with their first guess; what each has read is cut back to what still holds of it.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._cache: DecoderCache
        self._cross: SourceCache
        self._cache, self._cross = backend.caches()
        self._members: list[ModelDraftSession] = []
        self._read: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._members)

    @property
    def bytes(self) -> int:
        return self._cache.bytes + self._cross.bytes

    def bytes_for(self, draftings: Sequence[ModelDraftSession], tokens: int) -> int:
        """What it would need for these, none longer than `tokens`."""
        sources = [drafting.encoded for drafting in draftings]
        return cache_bytes_needed(
            self._backend, self._cache, self._cross, len(draftings), tokens, sources
        )

    def keep(self, staying: Iterable[DraftSession | None]) -> None:
        """Forget all generations but these."""
        wanted = {id(drafting) for drafting in staying}
        places = list(range(len(self._members)))
        for place in reversed(range(len(places))):
            if id(self._members[place]) not in wanted:
                places[place] = places[-1]  # the last one into the hole, so that little moves
                places.pop()
        if len(places) == len(self._members):
            return
        self._cache.reorder(places)
        self._cross.reorder(places)
        self._members = [self._members[place] for place in places]
        self._read = [self._read[place] for place in places]

    def propose(
        self, asked: Sequence[tuple[ModelDraftSession, Sequence[int], int]]
    ) -> list[Proposal | Exception]:
        """(drafting, its sequence, how many tokens at most) → guesses, or what went wrong with
        one generation alone."""
        guessing = [_DraftRound(d, self._slot_of(d), sequence, most) for d, sequence, most in asked]
        for each in guessing:
            self._rewind(each)
        self._catch_up([each for each in guessing if each.left])
        while going := [each for each in guessing if each.left]:
            logits = self._backend.logits(self._read_on(going))
            for each, own in zip(going, logits, strict=True):
                each.obey(own)
            best, chosen = argmax(logits)
            sound = chosen.isfinite().tolist()
            candidates = zip(going, logits, best.tolist(), sound, strict=True)
            for each, own, token, finite in candidates:
                each.choose(own, token, finite)
        return [each.result() for each in guessing]

    def _slot_of(self, drafting: ModelDraftSession) -> int:
        for slot, member in enumerate(self._members):
            if member is drafting:
                return slot
        self._members.append(drafting)
        self._read.append([])
        self._cross.store(self._cross.alloc(), drafting.encoded)
        return self._cache.alloc()

    def _rewind(self, guessing: _DraftRound) -> None:
        """Keep of a slot the longest beginning that it shares with the sequence, less its last
        token: that is read again, to know what follows."""
        read, same = self._read[guessing.slot], 0
        for mine, given in zip(read, guessing.tokens[:-1], strict=False):
            if mine != given:
                break
            same += 1
        self._cut(guessing.slot, same)

    def _cut(self, slot: int, length: int) -> None:
        del self._read[slot][length:]
        self._cache.truncate(slot, length)

    def _catch_up(self, guessing: Sequence[_DraftRound]) -> None:
        """Who has just come reads all but the last token; neighbours in step do it together."""
        new = sorted(
            (
                each
                for each in guessing
                if len(each.tokens) - len(self._read[each.slot]) > _USUAL_UNREAD_TOKENS
            ),
            key=lambda each: each.slot,
        )
        while new:
            first, group = new[0], [new[0]]
            for each in new[1:]:
                if each.slot != group[-1].slot + 1 or self._span(each) != self._span(first):
                    break
                group.append(each)
            new = new[len(group) :]
            start = len(self._read[first.slot])
            slots = slice(first.slot, first.slot + len(group))
            unread = [each.tokens[start:-1] for each in group]
            encoded_sources = [each.drafting.encoded for each in group]
            self._backend.decode(unread, slots, encoded_sources, self._cache, self._cross)
            self._cache.advance(slots, len(unread[0]))
            for each, ids in zip(group, unread, strict=True):
                self._read[each.slot] += ids

    def _span(self, each: _DraftRound) -> tuple[int, int]:
        return len(self._read[each.slot]), len(each.tokens)

    def _read_on(self, going: Sequence[_DraftRound]) -> Tensor:
        """One pass over whoever still guesses → states [going, width] after their last tokens.

        Slots between them read on for nothing, and those with fewer tokens behind their last; what
        they read does not count. Near the last position they begin earlier instead.
        """
        tokens = {each.slot: each.tokens for each in going}
        slots = slice(min(tokens), max(tokens) + 1)
        width = max(len(each.tokens) - len(self._read[each.slot]) for each in going)
        latest = self._backend.architecture.max_target_positions - width
        ids, ends = [], []
        for slot in range(slots.start, slots.stop):
            whole = tokens.get(slot, self._read[slot])
            start = min(len(self._read[slot]), latest)
            ids.append((whole[start:] + [0] * width)[:width])
            ends.append(len(whole) - start)
            self._read[slot] = list(whole)
            self._cache.truncate(slot, start)
        encoded_sources = [member.encoded for member in self._members[slots]]
        hidden_states = self._backend.decode(ids, slots, encoded_sources, self._cache, self._cross)
        for slot, end in enumerate(ends, slots.start):
            self._cache.advance(slice(slot, slot + 1), end)
        rows = [each.slot - slots.start for each in going]
        return hidden_states[rows, [ends[row] - 1 for row in rows]]
