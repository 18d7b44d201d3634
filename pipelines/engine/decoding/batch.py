"""The continuous batch of one model: requests join and leave it between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.decoding.draft_proposers import DraftProposers
from pipelines.engine.decoding.memory_budget import MemoryBudget, cache_bytes_needed
from pipelines.engine.decoding.model_runner import (
    ModelRunner,
    make_attention_capture,
    record_attention,
)
from pipelines.engine.decoding.request import FinishReason
from pipelines.engine.decoding.request_queue import RequestQueue
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    append_tokens,
    apply_suppression,
    record_last_token_probs,
    select_tokens,
    shared_suppressed_ids,
)
from pipelines.engine.decoding.statistics import Counters, Statistics
from pipelines.errors import EngineError

__all__ = ["Batch"]


class Batch:
    """Rows that are stepped together, and those that wait for a slot.

    The lanes of all rows, in order, lie in the slots of the decoder's cache; row i has slot i of
    the cross cache, which its lanes share. What a finished row leaves is refilled before the next
    step.
    Only `add` may be called from other threads than the one that steps.
    """

    def __init__(self, backend: Backend, max_sequences: int, budget: MemoryBudget) -> None:
        self.backend, self.max_sequences, self.budget = backend, max_sequences, budget
        self._counters = Counters()
        self._running: list[RequestState] = []
        self._waiting = RequestQueue()
        self._passes = ModelRunner(backend)
        self._drafts = DraftProposers()
        budget.add(self)

    @property
    def _cache(self) -> DecoderCache:
        return self._passes.cache

    @property
    def _cross(self) -> SourceCache:
        return self._passes.cross

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def priority(self) -> int:
        """The most urgent priority in here; lower is sooner."""
        running = [state.request.priority for state in self._running]
        return min([*running, *self._waiting.priorities])

    @property
    def bytes(self) -> int:
        """Memory held by the caches."""
        return self._cache.bytes + self._cross.bytes + self._drafts.bytes

    @property
    def promised(self) -> int:
        """What they hold, or may come to need for the rows that run."""
        return max(self.bytes, self._needs(self._running))

    def _needs(self, states: Sequence[RequestState]) -> int:
        """What the caches may need at the worst to have these rows in them."""
        if not states:
            return 0
        tokens = max(state.max_length for state in states)
        if any(state.drafting is not None for state in states):
            # Who has fewer guesses than its neighbours reads as many tokens for nothing.
            tokens = min(2 * tokens, self.backend.architecture.max_target_positions)
        sources, sequences = (
            [state.encoded for state in states],
            sum(state.width for state in states),
        )
        own = cache_bytes_needed(self.backend, self._cache, self._cross, sequences, tokens, sources)
        return own + self._drafts.bytes_for(states, tokens)

    @property
    def running(self) -> int:
        """How many rows have slots."""
        return len(self._running)

    @property
    def statistics(self) -> Statistics:
        """What this batch has done so far."""
        return self._counters.report(len(self._running), len(self._waiting), self.bytes)

    def release(self) -> None:
        """Give back the caches, which no row uses."""
        assert not self._running, "a running row needs its cache"
        self._passes.forget()

    def add(self, state: RequestState) -> None:
        """Let a row in before the next step that has a slot free for it."""
        self._waiting.add(state)

    def step(self) -> bool:
        """One token for every row: drop the cancelled, let the waiting in, decode, choose.
        Returns whether anything could be done."""
        before = len(self)
        self._drop_cancelled()
        self._admit()
        if not self._running:
            return len(self) < before
        states = self._running
        self._counters.stepped(len(self._cache))
        guesses = self._drafts.propose(states, self.backend.architecture.max_target_positions)
        if guesses is not None:
            self._passes.verify_proposals(states, guesses)
            self._settle()
            return True
        capture = make_attention_capture(states, 1)
        read = [[state.last(sequence)] for state in states for sequence in state.sequences]
        hidden_states = self._passes.decode(states, read, 0, capture)
        take_next = self._next(states, hidden_states[:, -1])
        self._cache.advance(slice(0, len(hidden_states)), 1)
        if capture is not None:
            record_attention(states, capture.weights)
        take_next()
        self._settle()
        return True

    def _next(self, states: Sequence[RequestState], hidden_states: Tensor) -> Callable[[], None]:
        """What gives each lane its next token, from its states [lanes, width]; whatever the model
        has to do for that is done."""
        shared = shared_suppressed_ids(states) if all(state.greedy for state in states) else None
        if shared is not None:
            logprobs = any(state.request.options.logprobs for state in states)
            return partial(
                append_tokens, states, *self.backend.argmax(hidden_states, shared, logprobs)
            )
        logits = self.backend.logits(hidden_states)
        record_last_token_probs(states, logits)
        apply_suppression(states, logits)
        return partial(select_tokens, states, logits)

    def fail(self, error: EngineError) -> None:
        """Give up on every row, running and waiting."""
        for state in self.drain():
            state.fail(error)

    def drain(self) -> list[RequestState]:
        """Take all rows out, running ones first, and forget the caches."""
        states = [*self._running, *self._waiting.drain()]
        for state in states:
            state.parents = None
        self._running = []
        self._passes.forget()
        self._drafts.forget()
        return states

    def restart(self) -> None:
        """Begin the next step anew from what each row has generated so far."""
        for state in self.drain():
            if not state.done:
                self._waiting.add(state)

    def _drop_cancelled(self) -> None:
        gone = self._waiting.pop_stopped()
        gone += [state for state in self._running if state.should_stop]
        for state in gone:
            state.end(FinishReason.CANCELLED if state.cancelled else FinishReason.TIMEOUT)
        if gone:
            self._settle()

    def _settle(self) -> None:
        """After a step: rows that have ended leave, and lanes take their parents' slots over."""
        states = self._running
        if not any(state.done or state.parents is not None for state in states):
            return
        starts, has_nan = self._starts(), self._erase_damaged()
        for place in range(len(states) - 1, -1, -1):
            if states[place].done:
                self._counters.left(states[place])
                # The last one into the hole, so that little moves; where it fits.
                fits = states[-1].slots == states[place].slots
                states[place] = states[-1] if fits else states[place]
                del states[-1 if fits else place]
        self._cross.reorder([starts[id(state)][0] for state in states])
        self._cache.reorder([slot for state in states for slot in starts[id(state)][1]])
        self._drafts.keep(states)
        for state in states:
            state.parents, state.slots = None, len(state.sequences)
        if has_nan:
            self._drafts.forget()  # they may have read the same

    def _erase_damaged(self) -> bool:
        """Erase what damaged rows have in the caches; whether there are any."""
        slot, found = 0, False
        for place, state in enumerate(self._running):
            if state.has_nan:
                found = True
                self._cross.erase(place)
                for at in range(slot, slot + state.slots):
                    self._cache.erase(at)
            slot += state.slots
        return found

    def _admit(self) -> None:
        joined: list[RequestState] = []
        used = sum(state.width for state in self._running)
        while (state := self._waiting.next()) is not None:
            if used and used + state.width > self.max_sequences:
                break  # but one that is wider than the whole batch runs alone
            if not self._affords([*self._running, *joined, state]):
                if used or self.budget.others_run(self):
                    break
                self._waiting.pop().fail(self._too_large(state))
                continue
            joined.append(self._waiting.pop())
            used += state.width
        if not joined:
            return
        for state in joined:
            state.move(self.backend.plan.device, self.backend.source_dtype)
        # Neighbours with equally long prompts are read in one pass, those on one memory together.
        joined.sort(key=lambda state: (*_prefill_shape(state), id(state.encoded)))
        start, slot = len(self._running), len(self._cache)
        self._running += (
            joined  # before the caches grow, which may fail: what is in no list is lost
        )
        for state in joined:
            self._counters.admitted(state)
            state.slots = len(state.sequences)
            for _ in state.sequences:
                self._cache.alloc()
            self._cross.store(self._cross.alloc(), state.encoded)
        while start < len(self._running):
            reading, stop = _prefill_shape(self._running[start]), start + 1
            while stop < len(self._running) and _prefill_shape(self._running[stop]) == reading:
                stop += 1
            length, draft = reading
            if draft:
                self._passes.prefill_and_verify(self._running[start:stop], start, slot)
            elif length > 1:
                self._passes.prefill(self._running[start:stop], start, slot)
            slot += sum(state.slots for state in self._running[start:stop])
            start = stop
        self._settle()

    def _affords(self, states: Sequence[RequestState]) -> bool:
        if self.budget.limit is None:
            return True
        allowed = self.budget.allows(self, max(self.bytes, self._needs(states)))
        if not allowed and len(states) == 1:
            self.release()  # alone in caches that were made for more
            allowed = self.budget.allows(self, self._needs(states))
        return allowed

    def _too_large(self, state: RequestState) -> EngineError:
        need, limit = self._needs([state]), self.budget.limit or 0
        return EngineError(
            f"{self.backend.folder.name} needs {need / 2**20:.1f} MiB of cache for {state.width} "
            f"lane(s), and the memory budget is {limit / 2**20:.1f} MiB; raise it, or use fewer "
            "beams"
        )

    def _starts(self) -> dict[int, tuple[int, list[int]]]:
        """For each row, by identity, its slot of the cross cache, and the slots that its lanes
        are to be copied from."""
        found: dict[int, tuple[int, list[int]]] = {}
        slot = 0
        for place, state in enumerate(self._running):
            parents = range(state.slots) if state.parents is None else state.parents
            found[id(state)] = (place, [slot + parent for parent in parents])
            slot += state.slots
        return found


def _prefill_shape(state: RequestState) -> tuple[int, int]:
    return len(state.tokens_of(state.sequences[0])), len(state.draft)
