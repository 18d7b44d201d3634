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
from pipelines.engine.decoding.sampling.logit_filters import Bound, Suppress
from pipelines.engine.decoding.sampling.search import Found, SampleSearch, Search
from pipelines.engine.decoding.sampling.sequence_state import Choice, Lane
from pipelines.errors import EdgeError

__all__ = ["Row"]


class Row:
    """A request on its way: its lanes, and the events its owner has not yet read.

    lanes: one, unless a `search` follows several. slots: how many slots of the batch they have.
    parents: after a step that changed the lanes, which of the former ones each came from.
    """

    def __init__(
        self, request: Request, vocab_size: int, max_positions: int, device: torch.device
    ) -> None:
        self.request = request
        self.memory = request.memory
        self._max_positions = max_positions
        self.width = request.options.width
        room = min(request.options.max_new_tokens, max_positions - len(request.prompt))
        self.draft = list(request.draft[:room]) if self.width == 1 else []
        self.accepted = self.drafted = 0
        drafter = request.drafter if self.width == 1 else None
        self.drafting = None if drafter is None else drafter.start(request.prompt, request.options)
        self.watched: dict[tuple[int, int], float] = {}
        self.events: deque[Event] = deque()
        self.reason: FinishReason | None = None
        self.error: EdgeError | None = None
        self.damaged = False  # it has failed because the model computed NaN
        self.cancelled = False
        self.arrived = time.monotonic()
        self._deadline = None if request.timeout_s is None else self.arrived + request.timeout_s
        self.lanes = [Lane([])]
        self.parents: list[int] | None = None
        self.slots = 0
        self._found: list[Found] = []
        self._told = 0
        self.vocab_size = vocab_size
        self.search: Search | None = None
        self._bind(device)
        self.search = self._search()

    def _search(self) -> Search | None:
        options = self.request.options
        if self.width == 1:
            return None
        # The last token is chosen at the last position, and never read.
        limit = self._max_positions - len(self.request.prompt) + 1
        limit = min(limit, options.max_new_tokens)
        if options.beam_size > 1:
            return BeamSearch(options, limit)
        assert self.generator is not None, "best_of needs a temperature"
        return SampleSearch(options, limit, self.generator)

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Be where the model is, which may have moved to the CPU since this row was made."""
        self.memory = self.memory.to(device, dtype)
        if device != self._device:
            self._bind(device)

    def _bind(self, device: torch.device) -> None:
        """Prepare rules and random numbers for a device."""
        options = self.request.options
        # Suppressed ids come first, whatever their place: no later rule can make −∞ finite but a
        # forced prefix, which overrides everything by design.
        self.suppressed = [
            rule.index(self.vocab_size, device)
            for rule in options.rules
            if isinstance(rule, Suppress)
        ]
        self._device = device
        for lane in self.lanes:
            lane.rules = self._bound()
        self.generator = generator_for(options.seed, device) if options.temperature else None
        if isinstance(self.search, SampleSearch) and self.generator is not None:
            self.search.generator = self.generator

    def _bound(self) -> list[Bound]:
        return [
            rule.bind(self.request.prompt, self.vocab_size, self._device)
            for rule in self.request.options.rules
            if not isinstance(rule, Suppress)
        ]

    @property
    def greedy(self) -> bool:
        """Whether nothing but the likeliest token is asked for."""
        plain = self.generator is None and self.search is None
        return plain and not self.lanes[0].rules and not self.request.watch

    @property
    def generated(self) -> list[int]:
        """The output so far, as the first lane has it."""
        return self.lanes[0].generated

    def sequence(self, lane: Lane) -> list[int]:
        """Prompt and output."""
        return [*self.request.prompt, *lane.generated]

    def last(self, lane: Lane) -> int:
        return lane.generated[-1] if lane.generated else self.request.prompt[-1]

    @property
    def has_news(self) -> bool:
        return bool(self.events) or self.error is not None

    @property
    def unwanted(self) -> bool:
        """Whether its owner has cancelled it, or its time is over."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return (self.cancelled or late) and not self.done

    @property
    def done(self) -> bool:
        return self.reason is not None or self.error is not None

    @property
    def longest(self) -> int:
        """How many tokens a lane may come to, with its prompt."""
        request = self.request
        return min(len(request.prompt) + request.options.max_new_tokens, self._max_positions)

    @property
    def left(self) -> int:
        """How many tokens a single lane may still get."""
        generated = len(self.lanes[0].generated)
        room = self._max_positions - len(self.request.prompt) + 1
        return min(self.request.options.max_new_tokens, room) - generated

    def take_draft(self) -> list[int]:
        """The draft; there is none from then on."""
        draft, self.draft = self.draft, []
        return draft

    def accept(self, token: int, logprob: float | None) -> None:
        """Take the next token of a single lane, and notice whether it is the last one."""
        options, lane = self.request.options, self.lanes[0]
        lane.generated.append(token)
        if logprob is not None:
            lane.logprobs.append(logprob)
        if token in options.eos_ids:
            self.reason = FinishReason.EOS
        else:
            # The newest token would be read at this position in the next step.
            position = len(self.request.prompt) + len(lane.generated) - 1
            if len(lane.generated) >= options.max_new_tokens or position >= self._max_positions:
                self.reason = FinishReason.LENGTH
        self.events.append(Event((token,), () if logprob is None else (logprob,), self.reason))

    def branch(self, choices: Sequence[Choice]) -> None:
        """Go on with other lanes, as the search has chosen."""
        assert self.search is not None
        lanes, used = [], set()
        for choice in choices:
            parent = self.lanes[choice.parent]
            # The first child goes on with its parent's rules; others bind their own, which
            # catch up with what was generated when they are first asked.
            rules = self._bound() if choice.parent in used else parent.rules
            used.add(choice.parent)
            lanes.append(parent.child(choice, rules))
        self.parents = [choice.parent for choice in choices]
        self.lanes = lanes or self.lanes
        if not self.search.done:
            self._tell(self._agreed())
            return
        self._found = self.search.ranked(self.lanes)
        best = self._found[0][1]
        self.reason = self._reason(best)
        self.lanes = [best]
        self._tell(len(best.generated))

    def _agreed(self) -> int:
        """How many tokens all hypotheses share, ended ones too."""
        assert self.search is not None
        first, *others = [*self.lanes, *(lane for _, lane in self.search.found)]
        at = self._told
        while at < len(first.generated) and all(
            at < len(lane.generated) and lane.generated[at] == first.generated[at]
            for lane in others
        ):
            at += 1
        return at

    def _tell(self, upto: int) -> None:
        """Report the tokens that are certain by now."""
        if upto > self._told or self.reason is not None:
            lane, span = self.lanes[0], slice(self._told, upto)
            logprobs = lane.logprobs[span] if self.request.options.logprobs else []
            self.events.append(Event(tuple(lane.generated[span]), tuple(logprobs), self.reason))
            self._told = upto

    def end(self, reason: FinishReason) -> None:
        """End without another token."""
        self.reason = reason
        if self.search is not None:  # of lanes that disagree, only what was told stands
            del self.lanes[0].generated[self._told :], self.lanes[0].logprobs[self._told :]
            del self.lanes[0].attention[self._told :]
        self.events.append(Event(reason=reason))

    def fail(self, error: EdgeError) -> None:
        """End with an error, unless it has ended already."""
        if not self.done:
            self.error = error

    def _reason(self, lane: Lane) -> FinishReason:
        ended = bool(lane.generated) and lane.generated[-1] in self.request.options.eos_ids
        return FinishReason.EOS if ended else FinishReason.LENGTH

    def result(self) -> Result:
        assert self.reason is not None, "a result needs an end"
        request, lane = self.request, self.lanes[0]
        seen: Tensor | None = None
        if request.attention:
            nothing = torch.zeros(len(request.attention), 0, self.memory.length)
            # Some may be from before a move to the CPU.
            looks = [look.cpu() for look in lane.attention]
            seen = torch.stack(looks, 1) if looks else nothing
        return Result(
            tuple(lane.generated),
            tuple(lane.logprobs) if request.options.logprobs else (),
            self.reason,
            tuple(self.watched[w] for w in request.watch if w in self.watched),
            self.accepted,
            self.drafted,
            seen,
            tuple(
                Hypothesis(
                    tuple(lane.generated),
                    tuple(lane.logprobs) if request.options.logprobs else (),
                    score,
                    self._reason(lane),
                )
                for score, lane in self._found[: request.options.n_best]
            ),
        )
