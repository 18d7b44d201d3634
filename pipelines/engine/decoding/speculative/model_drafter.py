"""Drafting with a smaller model: one batched pass of it drafts a token for all its requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.decoding.request import DraftSession, Proposal
from pipelines.engine.decoding.sampling.distributions import (
    draw,
    generator_for,
    next_distribution,
)
from pipelines.engine.decoding.sampling.logit_filters import SuppressTokens
from pipelines.engine.decoding.speculative.drafters import AdaptiveSession, check_gamma
from pipelines.engine.model.lm_head import argmax
from pipelines.errors import EngineError, RequestError

if TYPE_CHECKING:
    from pipelines.engine.decoding.sampling.options import GenerationOptions
    from pipelines.engine.state.encoded_source import EncodedSource

# A session in steady state has at most two unread tokens: the last drafted one, when all were
# accepted, and the one chosen after it. A session with more needs a prefill.
_MAX_UNREAD_TOKENS = 2


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
    """Drafts with a smaller model of the same vocabulary, under the request's own options.

    Attributes:
        model: The draft model.
        encoded: The request's source, encoded by the draft model.
        gamma: How many tokens to propose at once.
        adaptive: Propose more tokens after success and fewer after failure.
        pauses: Propose none while drafting takes longer than it saves, by the time of steps.

    Raises:
        OptionError: `gamma` is below 1.
        RequestError: `encoded` was encoded by another model.
    """

    model: DraftModel
    encoded: EncodedSource
    gamma: int = 4
    adaptive: bool = False
    pauses: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        if not self.model.owns(self.encoded):
            raise RequestError("the source of a drafter was encoded by another model")

    def check(self, vocab_size: int) -> None:
        """Raise RequestError if the vocabulary sizes differ."""
        backend = self.model.backend
        own = backend.architecture.vocab_size
        if own != vocab_size:
            raise RequestError(
                f"{backend.folder.name} has a vocabulary of {own}, the model it should draft "
                f"for one of {vocab_size}; they must be the same"
            )

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        """Start to draft for one request."""
        return ModelDraftSession(self.model.backend, self, tuple(prompt), options)


class ModelDraftSession(AdaptiveSession):
    """What a draft model needs for one request; the cache is shared with other requests."""

    def __init__(
        self,
        backend: Backend,
        drafter: ModelDrafter,
        prompt: tuple[int, ...],
        options: GenerationOptions,
    ) -> None:
        super().__init__(drafter.gamma, drafter.adaptive, drafter.pauses)
        self.backend, self.prompt, self.options = backend, prompt, options
        self.group = backend  # sessions of one draft model share its passes
        self.encoded = drafter.encoded.to(backend.plan.device, backend.source_dtype)
        # Another seed than the target's: with the same random numbers, drafts and the target's
        # draws would be correlated.
        seed = None if options.seed is None else options.seed ^ 0x5DEECE66D
        self.generator = generator_for(seed, backend.plan.device)
        self._own_batch: BatchedDraftModel | None = None

    def new_batch(self) -> BatchedDraftModel:
        return BatchedDraftModel(self.backend)

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        """Propose tokens for this session alone, in a cache of its own."""
        self._own_batch = self._own_batch or self.new_batch()
        (result,) = self._own_batch.propose([(self, sequence, most)])
        if isinstance(result, Exception):
            raise result
        return result


class _DraftRound:
    """One session while a proposal is drafted: its cache slot, its tokens with those drafted so
    far, and how many are left to draft."""

    def __init__(self, session: ModelDraftSession, slot: int, sequence: Sequence[int], most: int):
        backend = session.backend
        self.session, self.slot, self.tokens = session, slot, list(sequence)
        self._start = len(sequence)
        room = backend.architecture.max_target_positions - len(sequence)
        self.left = max(0, min(session.gamma, most, room))
        self._logit_filters = [
            logit_filter.bind(session.prompt, backend.architecture.vocab_size, backend.plan.device)
            for logit_filter in sorted(
                session.options.logit_filters, key=lambda f: not isinstance(f, SuppressTokens)
            )
        ]
        self._probs: list[Tensor] = []
        self._error: Exception | None = None

    def apply_filters(self, logits: Tensor) -> None:
        """Apply the logit filters to logits [vocab]."""
        try:
            for logit_filter in self._logit_filters:
                logit_filter(logits, self.tokens[len(self.session.prompt) :])
        except Exception as error:  # a caller's own filter may raise; the other sessions continue
            self._error, self.left = error, 0

    def append(self, logits: Tensor, best: int, finite: bool) -> None:
        """Append the next drafted token: `best`, the argmax, unless the request samples from the
        filtered logits [vocab]. The draft ends if the best logit is not finite."""
        if not finite:
            self.left = 0
        if not self.left:
            return
        token, options = best, self.session.options
        if options.samples:
            try:
                probs = next_distribution(logits, options)
                token = draw(probs, options, self.session.generator)
            except EngineError as error:  # of a caller's own processor
                self._error, self.left = error, 0
                return
            self._probs.append(probs)
        self.tokens.append(token)
        self.left = 0 if token in options.eos_ids else self.left - 1

    def result(self) -> Proposal | Exception:
        """The drafted tokens, or what a logit filter raised."""
        probs = torch.stack(self._probs) if self._probs else None
        return self._error or Proposal(self.tokens[self._start :], probs)


class BatchedDraftModel:
    """The sessions that one draft model serves, batched in one cache.

    A session gets a slot with its first proposal. Before each proposal its slot is truncated to
    the longest prefix that still agrees with the request's tokens.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._caches = backend.caches()
        self._cache = self._caches.tokens
        self._sessions: list[ModelDraftSession] = []  # by slot
        self._cached: list[list[int]] = []  # by slot: the tokens in the cache

    @property
    def bytes(self) -> int:
        """Memory held by the caches."""
        return self._caches.bytes

    def bytes_for(self, sessions: Sequence[ModelDraftSession], tokens: int) -> int:
        """Upper bound of the bytes needed for these sessions of at most `tokens` tokens each."""
        sources = [session.encoded for session in sessions]
        return self._caches.bytes_for(len(sessions), tokens, sources)

    def keep(self, staying: Iterable[DraftSession | None]) -> bool:
        """Free the slots of all other sessions; return whether any is left."""
        ids = {id(session) for session in staying}
        slots = list(range(len(self._sessions)))
        for slot in reversed(range(len(slots))):
            if id(self._sessions[slot]) not in ids:
                slots[slot] = slots[-1]  # the last one fills the gap, so that few slots are copied
                slots.pop()
        if len(slots) < len(self._sessions):
            self._cache.reorder(slots)
            self._caches.sources.reorder(slots)
            self._sessions = [self._sessions[slot] for slot in slots]
            self._cached = [self._cached[slot] for slot in slots]
        return bool(slots)

    def propose(
        self, inputs: Sequence[tuple[ModelDraftSession, Sequence[int], int]]
    ) -> list[Proposal | Exception]:
        """Draft tokens for several sessions, as DraftBatch.propose."""
        rounds = [
            _DraftRound(session, self._slot_of(session), sequence, most)
            for session, sequence, most in inputs
        ]
        for each in rounds:
            self._rewind(each)
        self._prefill([each for each in rounds if each.left])
        while active := [each for each in rounds if each.left]:
            logits = self._backend.logits(self._decode(active))
            for each, own in zip(active, logits, strict=True):
                each.apply_filters(own)
            best, best_logits = argmax(logits)
            finite = best_logits.isfinite().tolist()
            for each, own, token, ok in zip(active, logits, best.tolist(), finite, strict=True):
                each.append(own, token, ok)
        return [each.result() for each in rounds]

    def _slot_of(self, session: ModelDraftSession) -> int:
        """The session's slot, allocated if it has none."""
        for slot, other in enumerate(self._sessions):
            if other is session:
                return slot
        self._sessions.append(session)
        self._cached.append([])
        self._caches.add_source(session.encoded)
        return len(self._sessions) - 1

    def _rewind(self, draft: _DraftRound) -> None:
        """Truncate a slot to the prefix it shares with the sequence, without its last token.

        The last token is read again, as its hidden state is needed.
        """
        cached, shared = self._cached[draft.slot], 0
        for mine, given in zip(cached, draft.tokens[:-1], strict=False):
            if mine != given:
                break
            shared += 1
        del cached[shared:]
        self._cache.truncate(draft.slot, shared)

    def _prefill(self, drafts: Sequence[_DraftRound]) -> None:
        """Read all but the last token of new sessions; neighbors of equal shape in one pass."""
        new = sorted(
            (
                each
                for each in drafts
                if len(each.tokens) - len(self._cached[each.slot]) > _MAX_UNREAD_TOKENS
            ),
            key=lambda each: each.slot,
        )
        while new:
            first, group = new[0], [new[0]]
            for each in new[1:]:
                if each.slot != group[-1].slot + 1 or self._shape(each) != self._shape(first):
                    break
                group.append(each)
            new = new[len(group) :]
            start = len(self._cached[first.slot])
            slots = slice(first.slot, first.slot + len(group))
            unread = [each.tokens[start:-1] for each in group]
            encoded_sources = [each.session.encoded for each in group]
            self._caches.decode(unread, slots, encoded_sources)
            self._cache.advance(slots, len(unread[0]))
            for each, ids in zip(group, unread, strict=True):
                self._cached[each.slot] += ids

    def _shape(self, draft: _DraftRound) -> tuple[int, int]:
        return len(self._cached[draft.slot]), len(draft.tokens)

    def _decode(self, active: Sequence[_DraftRound]) -> Tensor:
        """One pass over the unread tokens of all active sessions.

        The pass covers all slots from the first to the last active one. Inactive slots between
        them, and sessions with fewer unread tokens, are padded; the padding does not stay in the
        cache. Where padding would exceed the last position, a slot starts some tokens earlier.

        Returns:
            Hidden states [active, d_model] after each session's last token.
        """
        tokens = {each.slot: each.tokens for each in active}
        slots = slice(min(tokens), max(tokens) + 1)
        num_tokens = max(len(each.tokens) - len(self._cached[each.slot]) for each in active)
        latest = self._backend.architecture.max_target_positions - num_tokens
        ids, num_read = [], []
        for slot in range(slots.start, slots.stop):
            own = tokens.get(slot, self._cached[slot])
            start = min(len(self._cached[slot]), latest)
            ids.append((own[start:] + [0] * num_tokens)[:num_tokens])
            num_read.append(len(own) - start)
            self._cached[slot] = list(own)
            self._cache.truncate(slot, start)
        encoded_sources = [session.encoded for session in self._sessions[slots]]
        hidden_states = self._caches.decode(ids, slots, encoded_sources)
        for slot, count in enumerate(num_read, slots.start):
            self._cache.advance(slice(slot, slot + 1), count)
        indices = [each.slot - slots.start for each in active]
        return hidden_states[indices, [num_read[index] - 1 for index in indices]]
