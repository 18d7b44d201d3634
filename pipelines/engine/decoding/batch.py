"""The continuous batch of one model: requests join and leave it between steps."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from pipelines.engine.decoding.request import FinishReason, GenerationOptions
from pipelines.engine.decoding.row import Row
from pipelines.engine.decoding.sampling import distribution, draw
from pipelines.engine.model.network import Network
from pipelines.errors import EngineError

__all__ = ["Batch"]


class Batch:
    """Rows that are stepped together, and those that wait for a slot.

    Row i lies in slot i of the caches. A finished row's slot is refilled before the next step.
    Only `add` may be called from other threads than the one that steps.
    """

    def __init__(self, network: Network, max_rows: int) -> None:
        self.network = network
        self.max_rows = max_rows
        self._rows: list[Row] = []
        self._inbox: deque[Row] = deque()
        self._waiting: list[tuple[int, int, Row]] = []
        self._arrivals = count()
        self._cache, self._cross = network.caches()

    def __len__(self) -> int:
        return len(self._rows) + len(self._waiting) + len(self._inbox)

    @property
    def priority(self) -> int:
        """The most urgent priority in here; lower is sooner."""
        rows = [*self._rows, *self._inbox, *(row for _, _, row in self._waiting[:1])]
        return min(int(row.request.priority) for row in rows)

    @property
    def bytes(self) -> int:
        """Memory held by the caches."""
        return self._cache.bytes + self._cross.bytes

    def add(self, row: Row) -> None:
        """Let a row in before the next step that has a slot free for it."""
        self._inbox.append(row)

    def step(self) -> None:
        """One token for every row: drop the cancelled, let the waiting in, decode, choose."""
        self._collect()
        self._drop_cancelled()
        self._admit()
        if not self._rows:
            return
        rows = self._rows
        hidden = self._decode([[row.last] for row in rows], 0)
        logits = self.network.logits(hidden[:, -1])
        self._watch(rows, logits)
        _suppress(rows, logits)
        self._cache.advance(slice(0, len(rows)), 1)
        self._choose(rows, logits)
        self._leave()

    def fail(self, error: EngineError) -> None:
        """Give up on every row, running and waiting."""
        for row in self.drain():
            row.fail(error)

    def drain(self) -> list[Row]:
        """Take all rows out, running ones first, and forget the caches."""
        self._collect()
        rows = [*self._rows, *(row for _, _, row in sorted(self._waiting, key=lambda w: w[:2]))]
        self._rows, self._waiting = [], []
        self._cache, self._cross = self.network.caches()
        return rows

    def restart(self) -> None:
        """Begin the next step anew from what each row has generated so far."""
        self._inbox.extend(row for row in self.drain() if not row.done)

    def _collect(self) -> None:
        while self._inbox:
            row = self._inbox.popleft()
            entry = (int(row.request.priority), next(self._arrivals), row)
            heapq.heappush(self._waiting, entry)

    def _drop_cancelled(self) -> None:
        waiting = [entry for entry in self._waiting if not entry[2].cancelled]
        gone = [row for _, _, row in self._waiting if row.cancelled]
        gone += [row for row in self._rows if row.cancelled]
        if not gone:
            return
        self._waiting = waiting
        heapq.heapify(self._waiting)
        for row in gone:
            row.end(FinishReason.CANCELLED)
        self._leave()

    def _leave(self) -> None:
        """Free the slots of ended rows; the last row takes the place of each."""
        for slot in range(len(self._rows) - 1, -1, -1):
            if self._rows[slot].done:
                self._rows[slot] = self._rows[-1]
                self._rows.pop()
                self._cache.free(slot)
                self._cross.free(slot)

    def _admit(self) -> None:
        joined: list[Row] = []
        while self._waiting and len(self._rows) + len(joined) < self.max_rows:
            joined.append(heapq.heappop(self._waiting)[2])
        # Neighbours with equally long prompts are read in one pass, those on one memory together.
        joined.sort(key=lambda row: (*_to_read(row), id(row.memory)))
        start = len(self._rows)
        for row in joined:
            self._rows.append(row)
            self._cache.alloc()
            slot = self._cross.alloc()
            if self.network.architecture.source == "tokens":
                self._cross.store(slot, row.memory)
        while start < len(self._rows):
            reading, stop = _to_read(self._rows[start]), start + 1
            while stop < len(self._rows) and _to_read(self._rows[stop]) == reading:
                stop += 1
            length, draft = reading
            if draft:
                self._verify(start, stop)
            elif length > 1:
                self._prefill(start, stop)
            start = stop
        self._leave()

    def _prefill(self, start: int, stop: int) -> None:
        """Read all but the last token of some rows' sequences, equally long."""
        rows = self._rows[start:stop]
        hidden = self._decode([row.sequence[:-1] for row in rows], start)
        self._cache.advance(slice(start, stop), hidden.shape[1])
        for row, states in zip(rows, hidden, strict=True):
            self._look_back(row, states)

    def _verify(self, start: int, stop: int) -> None:
        """Read some rows' sequences with their drafts, and keep of these what would be chosen.

        What follows the last token kept is chosen too: its logits are there already.
        """
        rows = self._rows[start:stop]
        drafts = [row.take_draft() for row in rows]
        read = [[*row.sequence, *draft] for row, draft in zip(rows, drafts, strict=True)]
        hidden = self._decode(read, start)
        self._cache.advance(slice(start, stop), hidden.shape[1])
        for slot, (row, draft) in enumerate(zip(rows, drafts, strict=True), start):
            states = hidden[slot - start]
            length = len(row.sequence)
            self._look_back(row, states[:length])
            logits = self.network.logits(states[length - 1 :])
            _suppress([row] * len(logits), logits)
            for expected, position in zip([*draft, None], logits, strict=True):
                self._choose([row], position[None])
                row.accepted += row.last == expected and row.error is None
                if row.done or row.last != expected:
                    break
            self._cache.truncate(slot, len(row.sequence) - 1)

    def _look_back(self, row: Row, states: Tensor) -> None:
        """Note what is watched at prompt positions; states [positions, d_model] from the first."""
        seen = [p for p, _ in row.request.watch if p < len(states)]
        if seen:
            _note(row, seen, self.network.logits(states[seen]))

    def _decode(self, ids: Sequence[Sequence[int]], start: int) -> Tensor:
        slots = slice(start, start + len(ids))
        memories = [row.memory for row in self._rows[slots]]
        return self.network.decode(ids, slots, memories, self._cache, self._cross)

    def _watch(self, rows: Sequence[Row], logits: Tensor) -> None:
        for index, row in enumerate(rows):
            last = len(row.request.prompt) - 1
            if not row.generated and any(p == last for p, _ in row.request.watch):
                _note(row, [last], logits[index : index + 1])

    def _choose(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Apply each row's other rules to its logits [rows, vocab], and take the next token."""
        for index, row in enumerate(rows):
            _obey(row, logits[index])
        tokens = logits.argmax(dim=-1)
        for index, row in enumerate(rows):
            if row.generator is not None:
                tokens[index : index + 1] = _sample(logits[index], row.request.options, row)
        # Where nobody wants log-probabilities, the chosen logit stands in: it too tells whether
        # there was anything to choose.
        chosen = logits.gather(1, tokens[:, None])[:, 0]
        if any(row.request.options.logprobs for row in rows):
            chosen = chosen - logits.logsumexp(dim=-1)
        for row, token, logprob in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
            if row.error is not None:
                continue
            if not math.isfinite(logprob):
                row.fail(EngineError(_nothing_left(row, logprob)))
                continue
            wanted = row.request.options.logprobs
            row.accept(token, logprob if wanted else None)


def _to_read(row: Row) -> tuple[int, int]:
    return len(row.sequence), len(row.draft)


def _suppress(rows: Sequence[Row], logits: Tensor) -> None:
    """Suppressed ids, in one operation where all rows share them."""
    shared = rows[0].suppressed
    if all(
        len(row.suppressed) == len(shared)
        and all(a is b for a, b in zip(row.suppressed, shared, strict=True))
        for row in rows
    ):
        for index in shared:
            logits.index_fill_(1, index, -torch.inf)
        return
    for row, own in zip(rows, logits, strict=True):
        for index in row.suppressed:
            own.index_fill_(0, index, -torch.inf)


def _obey(row: Row, logits: Tensor) -> None:
    try:
        for rule in row.rules:
            rule(logits, row.generated)
    except Exception as error:  # a caller's own rule may do anything; its neighbours go on
        row.fail(EngineError(f"a logits rule failed: {error!r}"))


def _sample(logits: Tensor, options: GenerationOptions, row: Row) -> Tensor:
    assert row.generator is not None
    if not torch.isfinite(logits.max()):
        return logits.argmax(dim=-1, keepdim=True)  # reported by the caller, as for greedy rows
    probabilities = distribution(logits, options.temperature, options.top_k, options.top_p)
    return draw(probabilities, row.generator)


def _note(row: Row, positions: Sequence[int], logits: Tensor) -> None:
    """Record the watched probabilities at these prompt positions; logits [positions, vocab]."""
    for position, probabilities in zip(positions, logits.softmax(-1), strict=True):
        for watched in row.request.watch:
            if watched[0] == position:
                row.watched[watched] = float(probabilities[watched[1]])


def _nothing_left(row: Row, logprob: float) -> str:
    at = len(row.generated)
    if logprob == -torch.inf:
        return f"the rules leave no token to choose after {at} tokens; relax one of them"
    return f"the model computed NaN after {at} tokens; its weights or its source are damaged"
