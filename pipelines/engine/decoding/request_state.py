"""A submitted request: its sequences, its progress and its unread events; and the queue of those
that wait for a slot."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from pipelines.engine.decoding.request import (
    Drafter,
    DraftSession,
    Event,
    FinishReason,
    Hypothesis,
    Request,
    Result,
)
from pipelines.engine.decoding.sampling.beam_search import BeamSearch
from pipelines.engine.decoding.sampling.distributions import generator_for
from pipelines.engine.decoding.sampling.logit_filters import BoundFilter, SuppressTokens
from pipelines.engine.decoding.sampling.search import (
    BestOfSearch,
    Candidate,
    ScoredSequence,
    SearchStrategy,
    SequenceState,
)
from pipelines.errors import EdgeError, EngineError, RequestError


class RequestState:
    """A submitted request.

    Attributes:
        request: As submitted.
        encoded: The request's source, on the device and in the dtype of the model.
        max_sequences: How many sequences the request takes at most.
        sequences: One, unless a `search` follows several.
        parents: After a step of a search, the index of the former sequence that each sequence
            continues; None when each continues itself.
        num_slots: How many slots of the decoder cache the request occupies.
        draft: Tokens of the request's draft that have not been verified yet.
        draft_session: The request's drafter at work, None without one.
        accepted, drafted: Counts of drafted tokens, as in Result.
        token_probs: The probabilities recorded so far, by (prompt position, token id).
        suppressed: Ids suppressed at every step, one tensor for each SuppressTokens filter.
        generator: Random numbers of this request, None when decoding greedily.
        search: Follows several sequences (beam search, best of n); None for a single one.
        events: Events that the caller has not read yet.
        reason: Why the request has ended; None while it runs or when it failed.
        error: Why the request failed.
        has_nan: The request failed because the model computed NaN.
        cancelled: Set by the caller, from any thread; the request ends before the next step.
        arrival_time: `time.monotonic()` at the submission.
    """

    def __init__(
        self, request: Request, vocab_size: int, max_positions: int, device: torch.device
    ) -> None:
        self.request = request
        self.encoded = request.encoded
        self._max_positions = max_positions
        self.max_sequences = request.options.max_sequences
        num_positions_left = min(
            request.options.max_new_tokens, max_positions - len(request.prompt)
        )
        self.draft = list(request.draft[:num_positions_left]) if self.max_sequences == 1 else []
        self.accepted = self.drafted = 0
        drafter = request.drafter if self.max_sequences == 1 else None
        self.draft_session = None if drafter is None else _start(drafter, request)
        self.token_probs: dict[tuple[int, int], float] = {}
        self.events: deque[Event] = deque()
        self.reason: FinishReason | None = None
        self.error: EdgeError | None = None
        self.has_nan = False
        self.cancelled = False
        self.arrival_time = time.monotonic()
        self._deadline = (
            None if request.timeout_s is None else self.arrival_time + request.timeout_s
        )
        self.sequences = [SequenceState([])]
        self.parents: list[int] | None = None
        self.num_slots = 0
        self._hypotheses: list[ScoredSequence] = []
        self._num_reported = 0  # tokens of a search that events have carried
        self.vocab_size = vocab_size
        self.search: SearchStrategy | None = None
        self._bind(device)
        self.search = self._make_search()

    def _make_search(self) -> SearchStrategy | None:
        options = self.request.options
        if self.max_sequences == 1:
            return None
        # The last token is chosen at the last position and never fed back to the decoder.
        limit = self._max_positions - len(self.request.prompt) + 1
        limit = min(limit, options.max_new_tokens)
        if options.beam_size > 1:
            return BeamSearch(options, limit)
        assert self.generator is not None, "best_of needs sampling"
        return BestOfSearch(options, limit, self.generator)

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move to the model's device, which may have become the CPU since the submission."""
        self.encoded = self.encoded.to(device, dtype)
        if device != self._device:
            self._bind(device)

    def _bind(self, device: torch.device) -> None:
        """Prepare logit filters and random numbers for a device."""
        options = self.request.options
        # Suppressed ids are applied first, wherever they stand in the options: no other filter
        # makes −∞ finite again, except a forced prefix, which overrides all others by design.
        self.suppressed = [
            logit_filter.index(self.vocab_size, device)
            for logit_filter in options.logit_filters
            if isinstance(logit_filter, SuppressTokens)
        ]
        self._device = device
        for sequence in self.sequences:
            sequence.logit_filters = self._bind_filters()
        self.generator = generator_for(options.seed, device) if options.samples else None
        if isinstance(self.search, BestOfSearch) and self.generator is not None:
            self.search.generator = self.generator

    def _bind_filters(self) -> list[BoundFilter]:
        return [
            logit_filter.bind(self.request.prompt, self.vocab_size, self._device)
            for logit_filter in self.request.options.logit_filters
            if not isinstance(logit_filter, SuppressTokens)
        ]

    @property
    def greedy(self) -> bool:
        """Whether the next token is the argmax of the logits without the suppressed ids."""
        plain = self.generator is None and self.search is None
        return plain and not self.sequences[0].logit_filters and not self.request.token_probs

    @property
    def generated(self) -> list[int]:
        """The output ids of the first sequence so far."""
        return self.sequences[0].generated

    def all_token_ids(self, sequence: SequenceState) -> list[int]:
        """Prompt and output ids of a sequence."""
        return [*self.request.prompt, *sequence.generated]

    def last_token(self, sequence: SequenceState) -> int:
        """The id that the decoder reads next for a sequence."""
        return sequence.generated[-1] if sequence.generated else self.request.prompt[-1]

    @property
    def has_events(self) -> bool:
        """Whether an event or an error can be read."""
        return bool(self.events) or self.error is not None

    @property
    def should_stop(self) -> bool:
        """Whether the request was cancelled or its timeout has passed."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return (self.cancelled or late) and not self.done

    @property
    def done(self) -> bool:
        """Whether the request has ended or failed."""
        return self.reason is not None or self.error is not None

    @property
    def max_length(self) -> int:
        """Upper bound of the tokens of a sequence, prompt included."""
        request = self.request
        return min(len(request.prompt) + request.options.max_new_tokens, self._max_positions)

    @property
    def num_tokens_left(self) -> int:
        """How many tokens a single sequence can still generate."""
        generated = len(self.sequences[0].generated)
        num_positions_left = self._max_positions - len(self.request.prompt) + 1
        return min(self.request.options.max_new_tokens, num_positions_left) - generated

    def pop_draft(self) -> list[int]:
        """Return the draft and clear it."""
        draft, self.draft = self.draft, []
        return draft

    def append_token(self, token: int, logprob: float | None) -> None:
        """Append the next token of a single sequence; end the request if it is the last one."""
        options, sequence = self.request.options, self.sequences[0]
        sequence.generated.append(token)
        if logprob is not None:
            sequence.logprobs.append(logprob)
        if token in options.eos_ids:
            self.reason = FinishReason.EOS
        else:
            # The decoder would read the newest token at this position in the next step.
            position = len(self.request.prompt) + len(sequence.generated) - 1
            if len(sequence.generated) >= options.max_new_tokens or position >= self._max_positions:
                self.reason = FinishReason.LENGTH
        self.events.append(Event((token,), () if logprob is None else (logprob,), self.reason))

    def branch(self, candidates: Sequence[Candidate]) -> None:
        """Replace the sequences by those that the search has chosen."""
        assert self.search is not None
        sequences, used = [], set()
        for candidate in candidates:
            parent = self.sequences[candidate.parent]
            # The first child takes over its parent's bound filters. The others bind their own,
            # which process all tokens generated so far in their first call.
            logit_filters = (
                self._bind_filters() if candidate.parent in used else parent.logit_filters
            )
            used.add(candidate.parent)
            sequences.append(parent.child(candidate, logit_filters))
        self.parents = [candidate.parent for candidate in candidates]
        self.sequences = sequences or self.sequences
        if not self.search.done:
            self._report(self._agreed_length())
            return
        self._hypotheses = self.search.ranked(self.sequences)
        best = self._hypotheses[0][1]
        self.reason = self._finish_reason(best)
        self.sequences = [best]
        self._report(len(best.generated))

    def _agreed_length(self) -> int:
        """How many tokens all hypotheses share, the ended ones included."""
        assert self.search is not None
        first, *others = [*self.sequences, *(sequence for _, sequence in self.search.hypotheses)]
        length = self._num_reported
        while length < len(first.generated) and all(
            length < len(sequence.generated)
            and sequence.generated[length] == first.generated[length]
            for sequence in others
        ):
            length += 1
        return length

    def _report(self, length: int) -> None:
        """Add an event with the tokens up to `length` that no event has carried yet."""
        if length > self._num_reported or self.reason is not None:
            sequence, new = self.sequences[0], slice(self._num_reported, length)
            logprobs = sequence.logprobs[new] if self.request.options.logprobs else []
            self.events.append(Event(tuple(sequence.generated[new]), tuple(logprobs), self.reason))
            self._num_reported = length

    def end(self, reason: FinishReason) -> None:
        """End without another token."""
        self.reason = reason
        if self.search is not None:  # the hypotheses disagree on the tokens not reported yet
            sequence = self.sequences[0]
            del sequence.generated[self._num_reported :], sequence.logprobs[self._num_reported :]
            del sequence.attention[self._num_reported :]
        self.events.append(Event(reason=reason))

    def fail(self, error: EdgeError) -> None:
        """End with an error, unless the request has ended already."""
        if not self.done:
            self.error = error

    def fail_drafting(self, error: Exception) -> None:
        """End with an error of the request's drafter."""
        self.fail(EngineError(f"a drafter failed: {error!r}"))

    def _finish_reason(self, sequence: SequenceState) -> FinishReason:
        ended = bool(sequence.generated) and sequence.generated[-1] in self.request.options.eos_ids
        return FinishReason.EOS if ended else FinishReason.LENGTH

    def result(self) -> Result:
        """The result of a request that has ended without an error."""
        assert self.reason is not None, "a result needs an end"
        request, sequence = self.request, self.sequences[0]
        attention: Tensor | None = None
        if request.attention:
            empty = torch.zeros(len(request.attention), 0, self.encoded.length)
            # Some tensors may be on the GPU, from before a move to the CPU.
            weights = [each.cpu() for each in sequence.attention]
            attention = torch.stack(weights, 1) if weights else empty
        return Result(
            tuple(sequence.generated),
            tuple(sequence.logprobs) if request.options.logprobs else (),
            self.reason,
            tuple(self.token_probs[p] for p in request.token_probs if p in self.token_probs),
            self.accepted,
            self.drafted,
            attention,
            tuple(
                Hypothesis(
                    tuple(sequence.generated),
                    tuple(sequence.logprobs) if request.options.logprobs else (),
                    score,
                    self._finish_reason(sequence),
                )
                for score, sequence in self._hypotheses[: request.options.n_best]
            ),
        )


def _start(drafter: Drafter, request: Request) -> DraftSession:
    session = drafter.start(request.prompt, request.options)
    if not isinstance(session, DraftSession):
        name = type(session).__name__
        raise RequestError(f"{name} cannot draft: derive it from pipelines.engine.DraftSession")
    return session


class RequestQueue:
    """A priority queue; lower priorities first, first come first served among equals.

    `add` may be called from any thread, all else only from the thread that steps.
    """

    def __init__(self) -> None:
        self._inbox: deque[RequestState] = deque()  # added, not yet in the heap
        self._heap: list[tuple[int, int, RequestState]] = []  # (priority, arrival, request)
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._inbox)

    def add(self, state: RequestState) -> None:
        """Append a request."""
        self._inbox.append(state)

    @property
    def priorities(self) -> list[int]:
        """The priorities of all requests that could be the next one."""
        return [state.request.priority for state in [*self._inbox, *(e[2] for e in self._heap[:1])]]

    def next(self) -> RequestState | None:
        """The request to admit next, which stays in the queue; None when the queue is empty."""
        self._sort_inbox()
        return self._heap[0][2] if self._heap else None

    def pop(self) -> RequestState:
        """Remove and return the request that `next` returned."""
        return heapq.heappop(self._heap)[2]

    def pop_stopped(self) -> list[RequestState]:
        """Remove and return all requests that were cancelled or whose timeout has passed."""
        self._sort_inbox()
        stopped = [state for _, _, state in self._heap if state.should_stop]
        if stopped:
            # `should_stop` is read once a request: a second read may see another timeout pass.
            ids = set(map(id, stopped))
            self._heap = [entry for entry in self._heap if id(entry[2]) not in ids]
            heapq.heapify(self._heap)
        return stopped

    def drain(self) -> list[RequestState]:
        """Remove and return all requests, in order."""
        self._sort_inbox()
        states = [state for _, _, state in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap = []
        return states

    def _sort_inbox(self) -> None:
        while self._inbox:
            state = self._inbox.popleft()
            heapq.heappush(self._heap, (state.request.priority, next(self._arrivals), state))
