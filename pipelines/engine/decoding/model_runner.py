"""Passes over the lanes of a batch: reading prompts, and taking or refusing what was guessed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.backends.base import Backend, Slots, Sources
from pipelines.engine.decoding.attention_recording import note_attention, readout_for
from pipelines.engine.decoding.rejection_sampling import verify
from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.sampler import choose, note_watched, suppress, watch_last
from pipelines.engine.decoding.speculative.drafters import Proposal
from pipelines.engine.state.attention_capture import Readout
from pipelines.engine.state.encoded_source import Sharing

__all__ = ["Passes"]


class Passes:
    """The caches of a batch, and what is read into them."""

    def __init__(self, network: Backend) -> None:
        self.network = network
        self.cache: Slots
        self.cross: Sources
        self.forget()

    def forget(self) -> None:
        """Empty caches."""
        self.cache, self.cross = self.network.caches()

    def decode(
        self,
        rows: Sequence[Row],
        ids: Sequence[Sequence[int]],
        start: int,
        readout: Readout | None = None,
        slot: int = 0,
    ) -> Tensor:
        """One pass over all lanes of some rows: the row at place `start` of the batch is the first,
        and its lanes begin at `slot`."""
        memories = [row.memory for row in rows for _ in row.lanes]
        slots = slice(slot, slot + len(ids))
        sharing = Sharing(start, tuple(len(row.lanes) for row in rows))
        return self.network.decode(ids, slots, memories, self.cache, self.cross, readout, sharing)

    def prefill(self, rows: Sequence[Row], start: int, slot: int) -> None:
        """Read all but the last token of some rows' sequences, equally long."""
        read = [row.sequence(lane)[:-1] for row in rows for lane in row.lanes]
        hidden = self.decode(rows, read, start, slot=slot)
        self.cache.advance(slice(slot, slot + len(read)), hidden.shape[1])
        for row in rows:
            self._look_back(row, hidden[0])
            hidden = hidden[len(row.lanes) :]

    def verify(self, rows: Sequence[Row], start: int, first: int) -> None:
        """Read some rows' sequences with their drafts, and keep of these what would be chosen.

        What follows the last token kept is chosen too: its logits are there already.
        """
        drafts = [row.take_draft() for row in rows]
        read = [
            [*row.sequence(row.lanes[0]), *draft] for row, draft in zip(rows, drafts, strict=True)
        ]
        readout = readout_for(rows, len(read[0]))
        hidden = self.decode(rows, read, start, readout, first)
        self.cache.advance(slice(first, first + len(rows)), hidden.shape[1])
        for index, (row, draft) in enumerate(zip(rows, drafts, strict=True)):
            self._look_back(row, hidden[index][: len(row.sequence(row.lanes[0]))])
            self._judge(row, Proposal(draft), hidden[index], first + index, index, readout)

    def attempt(self, rows: Sequence[Row], guesses: list[Proposal]) -> None:
        """As `step`, with guesses at what comes next. Those who have fewer read on for nothing;
        what they read does not count. Near the last position they read a little again instead."""
        most = 1 + max(len(guess.tokens) for guess in guesses)
        latest = self.network.architecture.max_target_positions - most
        read: list[list[int]] = []
        again: list[int] = []  # how many tokens of each lane
        for row, guess in zip(rows, guesses, strict=True):
            for lane in row.lanes:
                known = row.sequence(lane)
                start = min(len(known) - 1, latest)
                again.append(len(known) - 1 - start)
                self.cache.truncate(len(read), start)
                read.append((known[start:] + guess.tokens + [0] * most)[:most])
        readout = readout_for(rows, most)
        hidden = self.decode(rows, read, 0, readout)
        self.cache.advance(slice(0, len(read)), most)
        plain: list[Row] = []
        firsts: list[int] = []
        slot = 0
        for row, guess in zip(rows, guesses, strict=True):
            if guess.tokens:
                self._judge(row, guess, hidden[slot], slot, slot, readout)
            else:
                plain.append(row)
                firsts += range(slot, slot + row.slots)
            slot += row.slots
        if plain:
            logits = self.network.logits(hidden[firsts, [again[at] for at in firsts]])
            watch_last(plain, logits)
            suppress(plain, logits)
            for at in firsts:
                self.cache.truncate(at, self.cache.lengths[at] - most + again[at] + 1)
            if readout is not None:
                note_attention(plain, [readout.weights[at][:, again[at] :] for at in firsts])
            choose(plain, logits)

    def _judge(
        self,
        row: Row,
        guess: Proposal,
        states: Tensor,
        slot: int,
        place: int,
        readout: Readout | None,
    ) -> None:
        """Keep what holds of a guess that ends the pass; states [tokens, width], perhaps with
        padding behind, and its attention at `place` of the readout. Rewinds the cache."""
        lane = row.lanes[0]
        known = len(row.sequence(lane))
        before = known - 1 - (self.cache.lengths[slot] - len(states))  # where the known ends
        logits = self.network.logits(states[before : before + len(guess.tokens) + 1])
        if before == 0:
            watch_last([row], logits)
        verify(row, guess, logits)
        read = len(row.sequence(lane)) - 1
        self.cache.truncate(slot, read)
        if readout is not None and row.request.attention:
            del lane.attention[known - len(row.request.prompt) :]  # of an interrupted step
            chosen = readout.weights[place][:, before : before + read - known + 1]
            lane.attention.extend(chosen.unbind(1))

    def _look_back(self, row: Row, states: Tensor) -> None:
        """Note what is watched at prompt positions; states [positions, d_model] from the first."""
        seen = [p for p, _ in row.request.watch if p < len(states)]
        if seen:
            note_watched(row, seen, self.network.logits(states[seen]))
