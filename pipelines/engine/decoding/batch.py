"""The continuous batch of one model: requests join and leave it between steps."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import count

from torch import Tensor

from pipelines.engine.decoding.choosing import choose, note_watched, suppress, watch_last
from pipelines.engine.decoding.request import FinishReason
from pipelines.engine.decoding.row import Row
from pipelines.engine.model.network import Network
from pipelines.engine.model.readout import Readout
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
        readout = self._readout(rows, 1)
        hidden = self._decode([[row.last] for row in rows], 0, readout)
        logits = self.network.logits(hidden[:, -1])
        watch_last(rows, logits)
        suppress(rows, logits)
        self._cache.advance(slice(0, len(rows)), 1)
        choose(rows, logits)
        if readout is not None:
            _keep_attention(rows, readout)
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
        readout = self._readout(rows, len(read[0]))
        hidden = self._decode(read, start, readout)
        self._cache.advance(slice(start, stop), hidden.shape[1])
        for slot, (row, draft) in enumerate(zip(rows, drafts, strict=True), start):
            states = hidden[slot - start]
            length = len(row.sequence)
            self._look_back(row, states[:length])
            logits = self.network.logits(states[length - 1 :])
            suppress([row] * len(logits), logits)
            for expected, position in zip([*draft, None], logits, strict=True):
                choose([row], position[None])
                row.accepted += row.last == expected and row.error is None
                if row.done or row.last != expected:
                    break
            self._cache.truncate(slot, len(row.sequence) - 1)
            if readout is not None and row.request.attention:
                chosen = readout.weights[slot - start][:, length - 1 : len(row.sequence) - 1]
                row.attention.extend(chosen.unbind(1))

    def _look_back(self, row: Row, states: Tensor) -> None:
        """Note what is watched at prompt positions; states [positions, d_model] from the first."""
        seen = [p for p, _ in row.request.watch if p < len(states)]
        if seen:
            note_watched(row, seen, self.network.logits(states[seen]))

    def _decode(
        self, ids: Sequence[Sequence[int]], start: int, readout: Readout | None = None
    ) -> Tensor:
        slots = slice(start, start + len(ids))
        memories = [row.memory for row in self._rows[slots]]
        return self.network.decode(ids, slots, memories, self._cache, self._cross, readout)

    @staticmethod
    def _readout(rows: Sequence[Row], tokens: int) -> Readout | None:
        if not any(row.request.attention for row in rows):
            return None
        heads = [row.request.attention for row in rows]
        return Readout([row.memory for row in rows], heads, tokens)


def _keep_attention(rows: Sequence[Row], readout: Readout) -> None:
    """After a step of one token for every row."""
    for row, weights in zip(rows, readout.weights, strict=True):
        if row.request.attention and row.error is None:
            row.attention.append(weights[:, 0])


def _to_read(row: Row) -> tuple[int, int]:
    return len(row.sequence), len(row.draft)
