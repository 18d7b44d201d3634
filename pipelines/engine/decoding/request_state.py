"""One generation inside a running batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.decoding.request import Event, FinishReason, Hypothesis, Request, Result
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
from pipelines.errors import EdgeError

__all__ = ["RequestState"]


class RequestState:
    """A request on its way: its lanes, and the events its owner has not yet read.

    lanes: one, unless a `search` follows several. slots: how many slots of the batch they have.
    parents: after a step that changed the lanes, which of the former ones each came from.
    """

    def __init__(
        self, request: Request, vocab_size: int, max_positions: int, device: torch.device
    ) -> None:
        self.request = request
        self.encoded = request.encoded
        self._max_positions = max_positions
        self.width = request.options.width
        room = min(request.options.max_new_tokens, max_positions - len(request.prompt))
        self.draft = list(request.draft[:room]) if self.width == 1 else []
        self.accepted = self.drafted = 0
        drafter = request.drafter if self.width == 1 else None
        self.drafting = None if drafter is None else drafter.start(request.prompt, request.options)
        self.token_probs: dict[tuple[int, int], float] = {}
        self.events: deque[Event] = deque()
        self.reason: FinishReason | None = None
        self.error: EdgeError | None = None
        self.has_nan = False  # it has failed because the model computed NaN
        self.cancelled = False
        self.arrived = time.monotonic()
        self._deadline = None if request.timeout_s is None else self.arrived + request.timeout_s
        self.sequences = [SequenceState([])]
        self.parents: list[int] | None = None
        self.slots = 0
        self._found: list[ScoredSequence] = []
        self._told = 0
        self.vocab_size = vocab_size
        self.search: SearchStrategy | None = None
        self._bind(device)
        self.search = self._search()

    def _search(self) -> SearchStrategy | None:
        options = self.request.options
        if self.width == 1:
            return None
        # The last token is chosen at the last position, and never read.
        limit = self._max_positions - len(self.request.prompt) + 1
        limit = min(limit, options.max_new_tokens)
        if options.beam_size > 1:
            return BeamSearch(options, limit)
        assert self.generator is not None, "best_of needs a temperature"
        return BestOfSearch(options, limit, self.generator)

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Be where the model is, which may have moved to the CPU since this row was made."""
        self.encoded = self.encoded.to(device, dtype)
        if device != self._device:
            self._bind(device)

    def _bind(self, device: torch.device) -> None:
        """Prepare rules and random numbers for a device."""
        options = self.request.options
        # Suppressed ids come first, whatever their place: no later rule can make −∞ finite but a
        # forced prefix, which overrides everything by design.
        self.suppressed = [
            logit_filter.index(self.vocab_size, device)
            for logit_filter in options.logit_filters
            if isinstance(logit_filter, SuppressTokens)
        ]
        self._device = device
        for sequence in self.sequences:
            sequence.logit_filters = self._bound()
        self.generator = generator_for(options.seed, device) if options.temperature else None
        if isinstance(self.search, BestOfSearch) and self.generator is not None:
            self.search.generator = self.generator

    def _bound(self) -> list[BoundFilter]:
        return [
            logit_filter.bind(self.request.prompt, self.vocab_size, self._device)
            for logit_filter in self.request.options.logit_filters
            if not isinstance(logit_filter, SuppressTokens)
        ]

    @property
    def greedy(self) -> bool:
        """Whether nothing but the likeliest token is asked for."""
        plain = self.generator is None and self.search is None
        return plain and not self.sequences[0].logit_filters and not self.request.token_probs

    @property
    def generated(self) -> list[int]:
        """The output so far, as the first lane has it."""
        return self.sequences[0].generated

    def tokens_of(self, sequence: SequenceState) -> list[int]:
        """Prompt and output."""
        return [*self.request.prompt, *sequence.generated]

    def last(self, sequence: SequenceState) -> int:
        return sequence.generated[-1] if sequence.generated else self.request.prompt[-1]

    @property
    def has_events(self) -> bool:
        return bool(self.events) or self.error is not None

    @property
    def should_stop(self) -> bool:
        """Whether its owner has cancelled it, or its time is over."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return (self.cancelled or late) and not self.done

    @property
    def done(self) -> bool:
        return self.reason is not None or self.error is not None

    @property
    def max_length(self) -> int:
        """How many tokens a lane may come to, with its prompt."""
        request = self.request
        return min(len(request.prompt) + request.options.max_new_tokens, self._max_positions)

    @property
    def left(self) -> int:
        """How many tokens a single lane may still get."""
        generated = len(self.sequences[0].generated)
        room = self._max_positions - len(self.request.prompt) + 1
        return min(self.request.options.max_new_tokens, room) - generated

    def pop_draft(self) -> list[int]:
        """The draft; there is none from then on."""
        draft, self.draft = self.draft, []
        return draft

    def accept(self, token: int, logprob: float | None) -> None:
        """Take the next token of a single lane, and notice whether it is the last one."""
        options, sequence = self.request.options, self.sequences[0]
        sequence.generated.append(token)
        if logprob is not None:
            sequence.logprobs.append(logprob)
        if token in options.eos_ids:
            self.reason = FinishReason.EOS
        else:
            # The newest token would be read at this position in the next step.
            position = len(self.request.prompt) + len(sequence.generated) - 1
            if len(sequence.generated) >= options.max_new_tokens or position >= self._max_positions:
                self.reason = FinishReason.LENGTH
        self.events.append(Event((token,), () if logprob is None else (logprob,), self.reason))

    def branch(self, candidates: Sequence[Candidate]) -> None:
        """Go on with other lanes, as the search has chosen."""
        assert self.search is not None
        sequences, used = [], set()
        for candidate in candidates:
            parent = self.sequences[candidate.parent]
            # The first child goes on with its parent's rules; others bind their own, which
            # catch up with what was generated when they are first asked.
            logit_filters = self._bound() if candidate.parent in used else parent.logit_filters
            used.add(candidate.parent)
            sequences.append(parent.child(candidate, logit_filters))
        self.parents = [candidate.parent for candidate in candidates]
        self.sequences = sequences or self.sequences
        if not self.search.done:
            self._tell(self._agreed())
            return
        self._found = self.search.ranked(self.sequences)
        best = self._found[0][1]
        self.reason = self._reason(best)
        self.sequences = [best]
        self._tell(len(best.generated))

    def _agreed(self) -> int:
        """How many tokens all hypotheses share, ended ones too."""
        assert self.search is not None
        first, *others = [*self.sequences, *(sequence for _, sequence in self.search.found)]
        at = self._told
        while at < len(first.generated) and all(
            at < len(sequence.generated) and sequence.generated[at] == first.generated[at]
            for sequence in others
        ):
            at += 1
        return at

    def _tell(self, upto: int) -> None:
        """Report the tokens that are certain by now."""
        if upto > self._told or self.reason is not None:
            sequence, span = self.sequences[0], slice(self._told, upto)
            logprobs = sequence.logprobs[span] if self.request.options.logprobs else []
            self.events.append(Event(tuple(sequence.generated[span]), tuple(logprobs), self.reason))
            self._told = upto

    def end(self, reason: FinishReason) -> None:
        """End without another token."""
        self.reason = reason
        if self.search is not None:  # of lanes that disagree, only what was told stands
            del self.sequences[0].generated[self._told :], self.sequences[0].logprobs[self._told :]
            del self.sequences[0].attention[self._told :]
        self.events.append(Event(reason=reason))

    def fail(self, error: EdgeError) -> None:
        """End with an error, unless it has ended already."""
        if not self.done:
            self.error = error

    def _reason(self, sequence: SequenceState) -> FinishReason:
        ended = bool(sequence.generated) and sequence.generated[-1] in self.request.options.eos_ids
        return FinishReason.EOS if ended else FinishReason.LENGTH

    def result(self) -> Result:
        assert self.reason is not None, "a result needs an end"
        request, sequence = self.request, self.sequences[0]
        seen: Tensor | None = None
        if request.attention:
            null_source = torch.zeros(len(request.attention), 0, self.encoded.length)
            # Some may be from before a move to the CPU.
            looks = [look.cpu() for look in sequence.attention]
            seen = torch.stack(looks, 1) if looks else null_source
        return Result(
            tuple(sequence.generated),
            tuple(sequence.logprobs) if request.options.logprobs else (),
            self.reason,
            tuple(self.token_probs[w] for w in request.token_probs if w in self.token_probs),
            self.accepted,
            self.drafted,
            seen,
            tuple(
                Hypothesis(
                    tuple(sequence.generated),
                    tuple(sequence.logprobs) if request.options.logprobs else (),
                    score,
                    self._reason(sequence),
                )
                for score, sequence in self._found[: request.options.n_best]
            ),
        )
