"""One generation inside a running batch."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from pipelines.engine.decoding.request import Event, FinishReason, Request, Result
from pipelines.engine.decoding.rules import Bound, Suppress
from pipelines.engine.decoding.sampling import generator_for
from pipelines.errors import EdgeError

__all__ = ["Row"]


class Row:
    """A request on its way: what it has generated, and the events its owner has not yet read."""

    def __init__(
        self, request: Request, vocab_size: int, max_positions: int, device: torch.device
    ) -> None:
        self.request = request
        self.memory = request.memory
        self._max_positions = max_positions
        room = min(request.options.max_new_tokens, max_positions - len(request.prompt))
        self.draft = list(request.draft[:room])
        self.accepted = 0
        self.attention: list[Tensor] = []  # [heads, source length] a token
        self.generated: list[int] = []
        self.logprobs: list[float] = []
        self.watched: dict[tuple[int, int], float] = {}
        self.events: deque[Event] = deque()
        self.reason: FinishReason | None = None
        self.error: EdgeError | None = None
        self.cancelled = False
        self._vocab_size = vocab_size
        self.bind(device)

    def bind(self, device: torch.device) -> None:
        """Prepare rules and random numbers for a device."""
        options, prompt = self.request.options, self.request.prompt
        # Suppressed ids come first, whatever their place: no later rule can make −∞ finite but a
        # forced prefix, which overrides everything by design.
        self.suppressed = [
            rule.index(self._vocab_size, device)
            for rule in options.rules
            if isinstance(rule, Suppress)
        ]
        self.rules: list[Bound] = [
            rule.bind(prompt, self._vocab_size, device)
            for rule in options.rules
            if not isinstance(rule, Suppress)
        ]
        self.generator = generator_for(options.seed, device) if options.temperature else None

    @property
    def sequence(self) -> list[int]:
        """Prompt and output."""
        return [*self.request.prompt, *self.generated]

    @property
    def last(self) -> int:
        return self.generated[-1] if self.generated else self.request.prompt[-1]

    @property
    def has_news(self) -> bool:
        return bool(self.events) or self.error is not None

    @property
    def done(self) -> bool:
        return self.reason is not None or self.error is not None

    def take_draft(self) -> list[int]:
        """The draft; there is none from then on."""
        draft, self.draft = self.draft, []
        return draft

    def accept(self, token: int, logprob: float | None) -> None:
        """Take the next token, and notice whether it is the last one."""
        options = self.request.options
        self.generated.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if token in options.eos_ids:
            self.reason = FinishReason.EOS
        else:
            # The newest token would be read at this position in the next step.
            position = len(self.request.prompt) + len(self.generated) - 1
            if len(self.generated) >= options.max_new_tokens or position >= self._max_positions:
                self.reason = FinishReason.LENGTH
        self.events.append(Event((token,), () if logprob is None else (logprob,), self.reason))

    def end(self, reason: FinishReason) -> None:
        """End without another token."""
        self.reason = reason
        self.events.append(Event(reason=reason))

    def fail(self, error: EdgeError) -> None:
        """End with an error, unless it has ended already."""
        if not self.done:
            self.error = error

    def result(self) -> Result:
        assert self.reason is not None, "a result needs an end"
        watched = tuple(self.watched[w] for w in self.request.watch if w in self.watched)
        seen = None
        if self.request.attention:
            nothing = torch.zeros(len(self.request.attention), 0, self.memory.length)
            seen = torch.stack(self.attention, 1).cpu() if self.attention else nothing
        return Result(
            tuple(self.generated), tuple(self.logprobs), self.reason, watched, self.accepted, seen
        )
