"""The continuous batch of one model: requests join and leave it between steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.decoding.memory_budget import MemoryBudget
from pipelines.engine.decoding.model_runner import (
    ModelRunner,
    make_attention_capture,
    record_attention,
)
from pipelines.engine.decoding.request import FinishReason
from pipelines.engine.decoding.request_state import RequestQueue, RequestState
from pipelines.engine.decoding.sampler import (
    append_tokens,
    apply_suppression,
    record_last_token_probs,
    select_tokens,
    shared_suppressed_ids,
)
from pipelines.engine.decoding.speculative.speculation import Speculation
from pipelines.engine.decoding.speculative.verify import prefill_and_verify, verify_proposals
from pipelines.engine.decoding.statistics import Counters, Statistics
from pipelines.errors import EngineError


class Batch:
    """Requests that are stepped together, and those that wait for a slot.

    Slot layout: the sequences of all running requests, in order, occupy the slots of the decoder
    cache; request i has slot i of the cross cache, which its sequences share. Slots of finished
    requests are refilled before the next step.

    `add`, `priority` and `statistics` may be used from any thread, all else only from the thread
    that steps.

    Args:
        backend: The model.
        max_sequences: At most this many sequences run at once; one request with more runs alone.
        budget: The memory limit shared with the batches of other models.
    """

    def __init__(self, backend: Backend, max_sequences: int, budget: MemoryBudget) -> None:
        self.backend, self.max_sequences, self.budget = backend, max_sequences, budget
        self._counters = Counters()
        self._running: list[RequestState] = []
        self._waiting = RequestQueue()
        self._runner = ModelRunner(backend)
        self._speculation = Speculation()
        budget.add(self)

    @property
    def _cache(self) -> DecoderCache:
        return self._runner.cache

    @property
    def _cross(self) -> SourceCache:
        return self._runner.caches.sources

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def priority(self) -> int | None:
        """The most urgent (lowest) priority among running and waiting requests; None if there are
        none."""
        # Copies, as another thread may be in a step.
        running = [state.request.priority for state in list(self._running)]
        return min([*running, *self._waiting.priorities], default=None)

    @property
    def bytes(self) -> int:
        """Memory held by the caches, those of draft models included."""
        return self._runner.caches.bytes + self._speculation.bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the caches hold, or may come to need for the running requests."""
        # A copy, as another thread may be in a step.
        return max(self.bytes, self._bytes_needed(list(self._running)))

    def _bytes_needed(self, states: Sequence[RequestState]) -> int:
        """Upper bound of the cache bytes that these requests need."""
        if not states:
            return 0
        tokens = max(state.max_length for state in states)
        if any(state.draft_session is not None for state in states):
            # Sequences with fewer drafted tokens than others are padded to the same length.
            tokens = min(2 * tokens, self.backend.architecture.max_target_positions)
        sources = [state.encoded for state in states]
        sequences = sum(state.max_sequences for state in states)
        own = self._runner.caches.bytes_for(sequences, tokens, sources)
        return own + self._speculation.bytes_for(states, tokens)

    @property
    def num_running(self) -> int:
        """How many requests have slots."""
        return len(self._running)

    @property
    def statistics(self) -> Statistics:
        """Counters since the model was loaded, and the present load."""
        load = len(self._running), len(self._waiting), self.bytes
        return self._counters.report(*load, self._speculation.timing)

    def release_caches(self) -> None:
        """Free the caches. No request may be running."""
        assert not self._running, "a running request needs its cache"
        self._runner.reset_caches()

    def add(self, state: RequestState) -> None:
        """Add a request, which joins before the next step that has a free slot for it."""
        self._waiting.add(state)

    def step(self) -> bool:
        """Run one step: end stopped requests, admit waiting ones, then one decoder pass.

        The pass appends a token to each sequence, or several where drafted ones are accepted.

        Returns:
            Whether anything could be done; False while all requests wait for memory.
        """
        before = len(self)
        self._end_stopped()
        self._admit()
        if not self._running:
            return len(self) < before
        started = time.perf_counter()
        states, sequences = self._running, len(self._cache)
        self._counters.stepped(sequences)
        timing, most = self._speculation.timing, self.backend.architecture.max_target_positions
        proposals = self._speculation.propose(states, sequences, most)
        if proposals is None:
            self._step_plain(states)
            timing.record_plain(sequences, time.perf_counter() - started)
        else:
            drafted = [len(proposal.tokens) for proposal in proposals]
            accepted = verify_proposals(self._runner, states, proposals)
            refused = sum(map(int.__lt__, accepted, drafted))
            seconds = time.perf_counter() - started
            timing.record_drafted(sequences, seconds, sum(drafted), sum(accepted), refused)
        self._update_slots()
        return True

    def _step_plain(self, states: Sequence[RequestState]) -> None:
        """Append one token to each sequence."""
        capture = make_attention_capture(states, 1)
        ids = [[state.last_token(sequence)] for state in states for sequence in state.sequences]
        hidden_states = self._runner.decode(states, ids, capture=capture)
        select = self._prepare_selection(states, hidden_states[:, -1])
        self._cache.advance(slice(0, len(hidden_states)), 1)
        if capture is not None:
            record_attention(states, capture.weights)
        select()

    def _prepare_selection(
        self, states: Sequence[RequestState], hidden_states: Tensor
    ) -> Callable[[], None]:
        """Compute what the choice of the next tokens needs of the model, from the states
        [sequences, d_model] after each last token; return a function that appends the next token to
        each sequence."""
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
        """Fail all requests, running and waiting."""
        for state in self.drain():
            state.fail(error)

    def drain(self) -> list[RequestState]:
        """Remove all requests, running ones first, and reset the caches."""
        states = [*self._running, *self._waiting.drain()]
        for state in states:
            state.parents = None
        self._running = []
        self._runner.reset_caches()
        self._speculation.reset()
        return states

    def restart(self) -> None:
        """Requeue all requests; each is prefilled again with what it has generated so far."""
        for state in self.drain():
            if not state.done:
                self._waiting.add(state)

    def _end_stopped(self) -> None:
        """End the requests that were cancelled or whose timeout has passed."""
        stopped = self._waiting.pop_stopped()
        stopped += [state for state in self._running if state.should_stop]
        for state in stopped:
            state.end(FinishReason.CANCELLED if state.cancelled else FinishReason.TIMEOUT)
        if stopped:
            self._update_slots()

    def _update_slots(self) -> None:
        """Free the slots of ended requests, and copy to each sequence the cache of its parent."""
        states = self._running
        if not any(state.done or state.parents is not None for state in states):
            return
        former, any_nan = self._former_slots(), self._erase_nan()
        for index in reversed(range(len(states))):
            if states[index].done:
                self._counters.left(states[index])
                # Move the last request into the gap where it fits, so that few slots are copied.
                fits = states[-1].num_slots == states[index].num_slots
                states[index] = states[-1] if fits else states[index]
                del states[-1 if fits else index]
        self._cross.reorder([former[id(state)][0] for state in states])
        self._cache.reorder([slot for state in states for slot in former[id(state)][1]])
        self._speculation.keep(states)
        for state in states:
            state.parents, state.num_slots = None, len(state.sequences)
        if any_nan:
            self._speculation.reset()  # their caches may hold the same NaN

    def _erase_nan(self) -> bool:
        """Zero the slots of requests that failed with NaN; returns whether there were any."""
        first_slot, any_nan = 0, False
        for index, state in enumerate(self._running):
            if state.has_nan:
                any_nan = True
                self._cross.erase(index)
                for slot in range(first_slot, first_slot + state.num_slots):
                    self._cache.erase(slot)
            first_slot += state.num_slots
        return any_nan

    def _admit(self) -> None:
        """Give slots to waiting requests while there is room, and prefill them."""
        admitted: list[RequestState] = []
        used = sum(state.max_sequences for state in self._running)
        while (state := self._waiting.next()) is not None:
            # A request with more sequences than max_sequences runs alone.
            if used and used + state.max_sequences > self.max_sequences:
                break
            if not self._fits_budget([*self._running, *admitted, state]):
                if used or self.budget.others_run(self):
                    break
                self._waiting.pop().fail(self._too_large(state))
                continue
            admitted.append(self._waiting.pop())
            used += state.max_sequences
        if not admitted:
            return
        # Equally long prompts are prefilled in one pass, those with the same source side by side.
        admitted.sort(key=lambda state: (*_prefill_shape(state), id(state.encoded)))
        start, first_slot = len(self._running), len(self._cache)
        # Before sources move and caches grow, which may fail: a request in no list would never end.
        self._running += admitted
        for state in admitted:
            state.move(self.backend.plan.device, self.backend.source_dtype)
            self._counters.admitted(state)
            state.num_slots = len(state.sequences)
            for _ in state.sequences:
                self._cache.alloc()
            self._cross.store(self._cross.alloc(), state.encoded)
        while start < len(self._running):
            shape, stop = _prefill_shape(self._running[start]), start + 1
            while stop < len(self._running) and _prefill_shape(self._running[stop]) == shape:
                stop += 1
            length, draft_length = shape
            if draft_length:
                prefill_and_verify(self._runner, self._running[start:stop], start, first_slot)
            elif length > 1:
                self._runner.prefill(self._running[start:stop], start, first_slot)
            first_slot += sum(state.num_slots for state in self._running[start:stop])
            start = stop
        self._update_slots()

    def _fits_budget(self, states: Sequence[RequestState]) -> bool:
        if self.budget.limit is None:
            return True
        fits = self.budget.allows(self, max(self.bytes, self._bytes_needed(states)))
        if not fits and len(states) == 1:
            self.release_caches()  # a single request in caches that were made for more
            fits = self.budget.allows(self, self._bytes_needed(states))
        return fits

    def _too_large(self, state: RequestState) -> EngineError:
        need, limit = self._bytes_needed([state]), self.budget.limit or 0
        return EngineError(
            f"{self.backend.folder.name} needs {need / 2**20:.1f} MiB of cache for "
            f"{state.max_sequences} sequence(s), and the memory budget is {limit / 2**20:.1f} MiB; "
            "raise it, or use fewer beams"
        )

    def _former_slots(self) -> dict[int, tuple[int, list[int]]]:
        """For each running request, by id(): its slot of the cross cache, and the slots of the
        decoder cache that its sequences are to be copied from."""
        former: dict[int, tuple[int, list[int]]] = {}
        slot = 0
        for index, state in enumerate(self._running):
            parents = range(state.num_slots) if state.parents is None else state.parents
            former[id(state)] = (index, [slot + parent for parent in parents])
            slot += state.num_slots
        return former


def _prefill_shape(state: RequestState) -> tuple[int, int]:
    """(tokens so far, drafted tokens); requests of equal shape are prefilled in one pass."""
    return len(state.all_token_ids(state.sequences[0])), len(state.draft)
