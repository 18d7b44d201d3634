"""The continuous batch of one model: requests join and leave it between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from pipelines.engine.backends.base import Backend, Slots, Sources
from pipelines.engine.decoding.attention_recording import note_attention, readout_for
from pipelines.engine.decoding.draft_proposers import DraftPool
from pipelines.engine.decoding.memory_budget import Budget, need_of
from pipelines.engine.decoding.model_runner import Passes
from pipelines.engine.decoding.request import FinishReason
from pipelines.engine.decoding.request_queue import Waiting
from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.sampler import (
    choose,
    go_on,
    ruled_out,
    suppress,
    watch_last,
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

    def __init__(self, network: Backend, max_rows: int, budget: Budget) -> None:
        self.network, self.max_rows, self.budget = network, max_rows, budget
        self._counters = Counters()
        self._rows: list[Row] = []
        self._waiting = Waiting()
        self._passes = Passes(network)
        self._drafts = DraftPool()
        budget.add(self)

    @property
    def _cache(self) -> Slots:
        return self._passes.cache

    @property
    def _cross(self) -> Sources:
        return self._passes.cross

    def __len__(self) -> int:
        return len(self._rows) + len(self._waiting)

    @property
    def priority(self) -> int:
        """The most urgent priority in here; lower is sooner."""
        running = [int(row.request.priority) for row in self._rows]
        return min([*running, *self._waiting.priorities])

    @property
    def bytes(self) -> int:
        """Memory held by the caches."""
        return self._cache.bytes + self._cross.bytes + self._drafts.bytes

    @property
    def promised(self) -> int:
        """What they hold, or may come to need for the rows that run."""
        return max(self.bytes, self._needs(self._rows))

    def _needs(self, rows: Sequence[Row]) -> int:
        """What the caches may need at the worst to have these rows in them."""
        if not rows:
            return 0
        tokens = max(row.longest for row in rows)
        if any(row.drafting is not None for row in rows):
            # Who has fewer guesses than its neighbours reads as many tokens for nothing.
            tokens = min(2 * tokens, self.network.architecture.max_target_positions)
        sources, lanes = [row.memory for row in rows], sum(row.width for row in rows)
        own = need_of(self.network, self._cache, self._cross, lanes, tokens, sources)
        return own + self._drafts.bytes_for(rows, tokens)

    @property
    def running(self) -> int:
        """How many rows have slots."""
        return len(self._rows)

    @property
    def statistics(self) -> Statistics:
        """What this batch has done so far."""
        return self._counters.report(len(self._rows), len(self._waiting), self.bytes)

    def release(self) -> None:
        """Give back the caches, which no row uses."""
        assert not self._rows, "a running row needs its cache"
        self._passes.forget()

    def add(self, row: Row) -> None:
        """Let a row in before the next step that has a slot free for it."""
        self._waiting.add(row)

    def step(self) -> bool:
        """One token for every row: drop the cancelled, let the waiting in, decode, choose.
        Returns whether anything could be done."""
        before = len(self)
        self._drop_cancelled()
        self._admit()
        if not self._rows:
            return len(self) < before
        rows = self._rows
        self._counters.stepped(len(self._cache))
        guesses = self._drafts.propose(rows, self.network.architecture.max_target_positions)
        if guesses is not None:
            self._passes.attempt(rows, guesses)
            self._settle()
            return True
        readout = readout_for(rows, 1)
        read = [[row.last(lane)] for row in rows for lane in row.lanes]
        hidden = self._passes.decode(rows, read, 0, readout)
        take_next = self._next(rows, hidden[:, -1])
        self._cache.advance(slice(0, len(hidden)), 1)
        if readout is not None:
            note_attention(rows, readout.weights)
        take_next()
        self._settle()
        return True

    def _next(self, rows: Sequence[Row], states: Tensor) -> Callable[[], None]:
        """What gives each lane its next token, from its states [lanes, width]; whatever the model
        has to do for that is done."""
        shared = ruled_out(rows) if all(row.greedy for row in rows) else None
        if shared is not None:
            logprobs = any(row.request.options.logprobs for row in rows)
            return partial(go_on, rows, *self.network.likeliest(states, shared, logprobs))
        logits = self.network.logits(states)
        watch_last(rows, logits)
        suppress(rows, logits)
        return partial(choose, rows, logits)

    def fail(self, error: EngineError) -> None:
        """Give up on every row, running and waiting."""
        for row in self.drain():
            row.fail(error)

    def drain(self) -> list[Row]:
        """Take all rows out, running ones first, and forget the caches."""
        rows = [*self._rows, *self._waiting.drain()]
        for row in rows:
            row.parents = None
        self._rows = []
        self._passes.forget()
        self._drafts.forget()
        return rows

    def restart(self) -> None:
        """Begin the next step anew from what each row has generated so far."""
        for row in self.drain():
            if not row.done:
                self._waiting.add(row)

    def _drop_cancelled(self) -> None:
        gone = self._waiting.drop_unwanted()
        gone += [row for row in self._rows if row.unwanted]
        for row in gone:
            row.end(FinishReason.CANCELLED if row.cancelled else FinishReason.TIMEOUT)
        if gone:
            self._settle()

    def _settle(self) -> None:
        """After a step: rows that have ended leave, and lanes take their parents' slots over."""
        rows = self._rows
        if not any(row.done or row.parents is not None for row in rows):
            return
        starts, damaged = self._starts(), self._erase_damaged()
        for place in range(len(rows) - 1, -1, -1):
            if rows[place].done:
                self._counters.left(rows[place])
                # The last one into the hole, so that little moves; where it fits.
                fits = rows[-1].slots == rows[place].slots
                rows[place] = rows[-1] if fits else rows[place]
                del rows[-1 if fits else place]
        self._cross.reorder([starts[id(row)][0] for row in rows])
        self._cache.reorder([slot for row in rows for slot in starts[id(row)][1]])
        self._drafts.keep(rows)
        for row in rows:
            row.parents, row.slots = None, len(row.lanes)
        if damaged:
            self._drafts.forget()  # they may have read the same

    def _erase_damaged(self) -> bool:
        """Erase what damaged rows have in the caches; whether there are any."""
        slot, found = 0, False
        for place, row in enumerate(self._rows):
            if row.damaged:
                found = True
                self._cross.erase(place)
                for at in range(slot, slot + row.slots):
                    self._cache.erase(at)
            slot += row.slots
        return found

    def _admit(self) -> None:
        joined: list[Row] = []
        used = sum(row.width for row in self._rows)
        while (row := self._waiting.next()) is not None:
            if used and used + row.width > self.max_rows:
                break  # but one that is wider than the whole batch runs alone
            if not self._affords([*self._rows, *joined, row]):
                if used or self.budget.others_run(self):
                    break
                self._waiting.pop().fail(self._too_large(row))
                continue
            joined.append(self._waiting.pop())
            used += row.width
        if not joined:
            return
        for row in joined:
            row.move(self.network.plan.device, self.network.memory_dtype)
        # Neighbours with equally long prompts are read in one pass, those on one memory together.
        joined.sort(key=lambda row: (*_to_read(row), id(row.memory)))
        start, slot = len(self._rows), len(self._cache)
        self._rows += joined  # before the caches grow, which may fail: what is in no list is lost
        for row in joined:
            self._counters.admitted(row)
            row.slots = len(row.lanes)
            for _ in row.lanes:
                self._cache.alloc()
            self._cross.store(self._cross.alloc(), row.memory)
        while start < len(self._rows):
            reading, stop = _to_read(self._rows[start]), start + 1
            while stop < len(self._rows) and _to_read(self._rows[stop]) == reading:
                stop += 1
            length, draft = reading
            if draft:
                self._passes.verify(self._rows[start:stop], start, slot)
            elif length > 1:
                self._passes.prefill(self._rows[start:stop], start, slot)
            slot += sum(row.slots for row in self._rows[start:stop])
            start = stop
        self._settle()

    def _affords(self, rows: Sequence[Row]) -> bool:
        if self.budget.limit is None:
            return True
        allowed = self.budget.allows(self, max(self.bytes, self._needs(rows)))
        if not allowed and len(rows) == 1:
            self.release()  # alone in caches that were made for more
            allowed = self.budget.allows(self, self._needs(rows))
        return allowed

    def _too_large(self, row: Row) -> EngineError:
        need, limit = self._needs([row]), self.budget.limit or 0
        return EngineError(
            f"{self.network.folder.name} needs {need / 2**20:.1f} MiB of cache for {row.width} "
            f"lane(s), and the memory budget is {limit / 2**20:.1f} MiB; raise it, or use fewer "
            "beams"
        )

    def _starts(self) -> dict[int, tuple[int, list[int]]]:
        """For each row, by identity, its slot of the cross cache, and the slots that its lanes
        are to be copied from."""
        found: dict[int, tuple[int, list[int]]] = {}
        slot = 0
        for place, row in enumerate(self._rows):
            parents = range(row.slots) if row.parents is None else row.parents
            found[id(row)] = (place, [slot + parent for parent in parents])
            slot += row.slots
        return found


def _to_read(row: Row) -> tuple[int, int]:
    return len(row.sequence(row.lanes[0])), len(row.draft)
