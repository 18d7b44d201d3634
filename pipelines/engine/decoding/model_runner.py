"""Passes over the lanes of a batch: reading prompts, and taking or refusing what was guessed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.decoding.rejection_sampling import verify_draft
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    apply_suppression,
    record_last_token_probs,
    record_token_probs,
    select_tokens,
)
from pipelines.engine.decoding.speculative.drafters import Proposal
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import SourceGroups

__all__ = ["ModelRunner", "make_attention_capture", "record_attention"]


class ModelRunner:
    """The caches of a batch, and what is read into them."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.cache: DecoderCache
        self.cross: SourceCache
        self.forget()

    def forget(self) -> None:
        """Empty caches."""
        self.cache, self.cross = self.backend.caches()

    def decode(
        self,
        states: Sequence[RequestState],
        ids: Sequence[Sequence[int]],
        start: int,
        capture: AttentionCapture | None = None,
        slot: int = 0,
    ) -> Tensor:
        """One pass over all lanes of some rows: the row at place `start` of the batch is the first,
        and its lanes begin at `slot`."""
        encoded_sources = [state.encoded for state in states for _ in state.sequences]
        slots = slice(slot, slot + len(ids))
        source_groups = SourceGroups(start, tuple(len(state.sequences) for state in states))
        return self.backend.decode(
            ids, slots, encoded_sources, self.cache, self.cross, capture, source_groups
        )

    def prefill(self, states: Sequence[RequestState], start: int, slot: int) -> None:
        """Read all but the last token of some rows' sequences, equally long."""
        read = [state.tokens_of(sequence)[:-1] for state in states for sequence in state.sequences]
        hidden_states = self.decode(states, read, start, slot=slot)
        self.cache.advance(slice(slot, slot + len(read)), hidden_states.shape[1])
        for state in states:
            self._record_prompt_probs(state, hidden_states[0])
            hidden_states = hidden_states[len(state.sequences) :]

    def prefill_and_verify(self, states: Sequence[RequestState], start: int, first: int) -> None:
        """Read some rows' sequences with their drafts, and keep of these what would be chosen.

        What follows the last token kept is chosen too: its logits are there already.
        """
        drafts = [state.pop_draft() for state in states]
        read = [
            [*state.tokens_of(state.sequences[0]), *draft]
            for state, draft in zip(states, drafts, strict=True)
        ]
        capture = make_attention_capture(states, len(read[0]))
        hidden_states = self.decode(states, read, start, capture, first)
        self.cache.advance(slice(first, first + len(states)), hidden_states.shape[1])
        for index, (state, draft) in enumerate(zip(states, drafts, strict=True)):
            self._record_prompt_probs(
                state, hidden_states[index][: len(state.tokens_of(state.sequences[0]))]
            )
            self._verify_one(
                state, Proposal(draft), hidden_states[index], first + index, index, capture
            )

    def verify_proposals(self, states: Sequence[RequestState], guesses: list[Proposal]) -> None:
        """As `step`, with guesses at what comes next. Those who have fewer read on for nothing;
        what they read does not count. Near the last position they read a little again instead."""
        most = 1 + max(len(guess.tokens) for guess in guesses)
        latest = self.backend.architecture.max_target_positions - most
        read: list[list[int]] = []
        again: list[int] = []  # how many tokens of each lane
        for state, guess in zip(states, guesses, strict=True):
            for sequence in state.sequences:
                known = state.tokens_of(sequence)
                start = min(len(known) - 1, latest)
                again.append(len(known) - 1 - start)
                self.cache.truncate(len(read), start)
                read.append((known[start:] + guess.tokens + [0] * most)[:most])
        capture = make_attention_capture(states, most)
        hidden_states = self.decode(states, read, 0, capture)
        self.cache.advance(slice(0, len(read)), most)
        plain: list[RequestState] = []
        firsts: list[int] = []
        slot = 0
        for state, guess in zip(states, guesses, strict=True):
            if guess.tokens:
                self._verify_one(state, guess, hidden_states[slot], slot, slot, capture)
            else:
                plain.append(state)
                firsts += range(slot, slot + state.slots)
            slot += state.slots
        if plain:
            logits = self.backend.logits(hidden_states[firsts, [again[at] for at in firsts]])
            record_last_token_probs(plain, logits)
            apply_suppression(plain, logits)
            for at in firsts:
                self.cache.truncate(at, self.cache.lengths[at] - most + again[at] + 1)
            if capture is not None:
                record_attention(plain, [capture.weights[at][:, again[at] :] for at in firsts])
            select_tokens(plain, logits)

    def _verify_one(
        self,
        state: RequestState,
        guess: Proposal,
        hidden_states: Tensor,
        slot: int,
        place: int,
        capture: AttentionCapture | None,
    ) -> None:
        """Keep what holds of a guess that ends the pass; states [tokens, width], perhaps with
        padding behind, and its attention at `place` of the readout. Rewinds the cache."""
        sequence = state.sequences[0]
        known = len(state.tokens_of(sequence))
        before = known - 1 - (self.cache.lengths[slot] - len(hidden_states))  # where the known ends
        logits = self.backend.logits(hidden_states[before : before + len(guess.tokens) + 1])
        if before == 0:
            record_last_token_probs([state], logits)
        verify_draft(state, guess, logits)
        read = len(state.tokens_of(sequence)) - 1
        self.cache.truncate(slot, read)
        if capture is not None and state.request.attention:
            del sequence.attention[known - len(state.request.prompt) :]  # of an interrupted step
            chosen = capture.weights[place][:, before : before + read - known + 1]
            sequence.attention.extend(chosen.unbind(1))

    def _record_prompt_probs(self, state: RequestState, hidden_states: Tensor) -> None:
        """Note what is watched at prompt positions; states [positions, d_model] from the first."""
        seen = [p for p, _ in state.request.token_probs if p < len(hidden_states)]
        if seen:
            record_token_probs(state, seen, self.backend.logits(hidden_states[seen]))


def make_attention_capture(states: Sequence[RequestState], tokens: int) -> AttentionCapture | None:
    """What collects the attention of a pass over all lanes; None where nobody asks."""
    if not any(state.request.attention for state in states):
        return None
    wishes = [(state.encoded, state.request.attention) for state in states for _ in state.sequences]
    return AttentionCapture(
        [encoded for encoded, _ in wishes], [heads for _, heads in wishes], tokens
    )


def record_attention(states: Sequence[RequestState], found: Sequence[Tensor]) -> None:
    """Before a step of one token for every lane is decided; found: [heads, tokens, length] each,
    of which the first token counts."""
    sequences = ((state, sequence) for state in states for sequence in state.sequences)
    for (state, sequence), weights in zip(sequences, found, strict=True):
        if state.request.attention:
            del sequence.attention[len(sequence.generated) :]  # of a step that was interrupted
            sequence.attention.append(weights[:, 0])
