"""Decoder passes over the sequences of a batch: prefill, single steps, and draft verification."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache, SourceCache
from pipelines.engine.decoding.request import Proposal
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    apply_suppression,
    record_last_token_probs,
    record_token_probs,
    select_tokens,
)
from pipelines.engine.decoding.speculative.verify import verify_draft
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import SourceGroups


class ModelRunner:
    """The caches of a batch, and the passes that fill them.

    Attributes:
        backend: The model.
        cache: Self-attention keys and values, a slot for each sequence.
        cross: Cross-attention keys and values, a slot for each request.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.cache: DecoderCache
        self.cross: SourceCache
        self.reset_caches()

    def reset_caches(self) -> None:
        """Replace the caches by empty ones."""
        self.cache, self.cross = self.backend.caches()

    def decode(
        self,
        states: Sequence[RequestState],
        ids: Sequence[Sequence[int]],
        first_source_slot: int = 0,
        first_slot: int = 0,
        capture: AttentionCapture | None = None,
    ) -> Tensor:
        """Run one decoder pass over all sequences of neighboring requests.

        Args:
            states: The requests.
            ids: New token ids for each sequence, equally many.
            first_source_slot: Slot of the first request in the cross cache.
            first_slot: Slot of the first sequence in the decoder cache.
            capture: Collects cross-attention weights.

        Returns:
            Hidden states [sequences, tokens, d_model]. The cache is written, not advanced.
        """
        encoded_sources = [state.encoded for state in states for _ in state.sequences]
        slots = slice(first_slot, first_slot + len(ids))
        source_groups = SourceGroups(
            first_source_slot, tuple(len(state.sequences) for state in states)
        )
        return self.backend.decode(
            ids, slots, encoded_sources, self.cache, self.cross, capture, source_groups
        )

    def prefill(
        self, states: Sequence[RequestState], first_source_slot: int, first_slot: int
    ) -> None:
        """Read all but the last token of equally long sequences into the cache."""
        ids = [
            state.all_token_ids(sequence)[:-1] for state in states for sequence in state.sequences
        ]
        hidden_states = self.decode(states, ids, first_source_slot, first_slot)
        self.cache.advance(slice(first_slot, first_slot + len(ids)), hidden_states.shape[1])
        for state in states:
            self._record_prompt_probs(state, hidden_states[0])
            hidden_states = hidden_states[len(state.sequences) :]

    def prefill_and_verify(
        self, states: Sequence[RequestState], first_source_slot: int, first_slot: int
    ) -> None:
        """Read equally long sequences with equally long drafts, and keep the accepted tokens.

        The token after the last accepted one is chosen too, as its logits are computed already.
        """
        drafts = [state.pop_draft() for state in states]
        ids = [
            [*state.all_token_ids(state.sequences[0]), *draft]
            for state, draft in zip(states, drafts, strict=True)
        ]
        capture = make_attention_capture(states, len(ids[0]))
        hidden_states = self.decode(states, ids, first_source_slot, first_slot, capture)
        self.cache.advance(slice(first_slot, first_slot + len(states)), hidden_states.shape[1])
        for index, (state, draft) in enumerate(zip(states, drafts, strict=True)):
            prompt_length = len(state.all_token_ids(state.sequences[0]))
            self._record_prompt_probs(state, hidden_states[index][:prompt_length])
            self._verify_one(
                state, Proposal(draft), hidden_states[index], first_slot + index, index, capture
            )

    def verify_proposals(
        self, states: Sequence[RequestState], proposals: Sequence[Proposal]
    ) -> None:
        """One step of all running requests with drafted tokens, in one pass.

        Shorter proposals are padded; the padding is cut from the cache afterwards. Where padding
        would exceed the last position, the pass starts some tokens earlier instead and reads these
        again.
        """
        num_tokens = 1 + max(len(proposal.tokens) for proposal in proposals)
        latest = self.backend.architecture.max_target_positions - num_tokens
        ids: list[list[int]] = []
        num_reread: list[int] = []  # for each sequence, tokens that are read again
        for state, proposal in zip(states, proposals, strict=True):
            for sequence in state.sequences:
                tokens = state.all_token_ids(sequence)
                start = min(len(tokens) - 1, latest)
                num_reread.append(len(tokens) - 1 - start)
                self.cache.truncate(len(ids), start)
                ids.append((tokens[start:] + proposal.tokens + [0] * num_tokens)[:num_tokens])
        capture = make_attention_capture(states, num_tokens)
        hidden_states = self.decode(states, ids, capture=capture)
        self.cache.advance(slice(0, len(ids)), num_tokens)
        undrafted: list[RequestState] = []
        undrafted_slots: list[int] = []
        slot = 0
        for state, proposal in zip(states, proposals, strict=True):
            if proposal.tokens:
                self._verify_one(state, proposal, hidden_states[slot], slot, slot, capture)
            else:
                undrafted.append(state)
                undrafted_slots += range(slot, slot + state.num_slots)
            slot += state.num_slots
        if undrafted:
            last = [num_reread[slot] for slot in undrafted_slots]
            logits = self.backend.logits(hidden_states[undrafted_slots, last])
            record_last_token_probs(undrafted, logits)
            apply_suppression(undrafted, logits)
            for slot in undrafted_slots:
                self.cache.truncate(
                    slot, self.cache.lengths[slot] - num_tokens + num_reread[slot] + 1
                )
            if capture is not None:
                record_attention(
                    undrafted,
                    [capture.weights[slot][:, num_reread[slot] :] for slot in undrafted_slots],
                )
            select_tokens(undrafted, logits)

    def _verify_one(
        self,
        state: RequestState,
        proposal: Proposal,
        hidden_states: Tensor,
        slot: int,
        index: int,
        capture: AttentionCapture | None,
    ) -> None:
        """Append the accepted tokens of a proposal and the token after them; truncate the cache.

        Args:
            state: A request with a single sequence.
            proposal: Drafted tokens at the end of the pass, perhaps with padding behind.
            hidden_states: [tokens of the pass, d_model].
            slot: The request's slot of the decoder cache.
            index: Of the request's sequence in `capture`.
            capture: Cross-attention of the pass.
        """
        sequence = state.sequences[0]
        length = len(state.all_token_ids(sequence))
        # Index of the sequence's last token in the pass.
        last = length - 1 - (self.cache.lengths[slot] - len(hidden_states))
        logits = self.backend.logits(hidden_states[last : last + len(proposal.tokens) + 1])
        record_last_token_probs([state], logits)
        verify_draft(state, proposal, logits)
        new_length = len(state.all_token_ids(sequence))
        self.cache.truncate(slot, new_length - 1)
        if capture is not None and state.request.attention:
            # An interrupted step may have left weights behind.
            del sequence.attention[length - len(state.request.prompt) :]
            weights = capture.weights[index][:, last : last + new_length - length]
            sequence.attention.extend(weights.unbind(1))

    def _record_prompt_probs(self, state: RequestState, hidden_states: Tensor) -> None:
        """Record the requested probabilities at prompt positions.

        Args:
            state: The request.
            hidden_states: [positions, d_model] from the first prompt position on.
        """
        positions = [p for p, _ in state.request.token_probs if p < len(hidden_states)]
        if positions:
            record_token_probs(state, positions, self.backend.logits(hidden_states[positions]))


def make_attention_capture(states: Sequence[RequestState], tokens: int) -> AttentionCapture | None:
    """A capture for a pass of `tokens` tokens over all sequences; None if no request needs one."""
    if not any(state.request.attention for state in states):
        return None
    wanted = [(state.encoded, state.request.attention) for state in states for _ in state.sequences]
    return AttentionCapture(
        [encoded for encoded, _ in wanted], [heads for _, heads in wanted], tokens
    )


def record_attention(states: Sequence[RequestState], weights: Sequence[Tensor]) -> None:
    """Store the attention weights with which the next tokens are chosen, before they are chosen.

    Args:
        states: Requests.
        weights: For each of their sequences [heads, tokens, source length]; the first token counts.
    """
    sequences = ((state, sequence) for state in states for sequence in state.sequences)
    for (state, sequence), own in zip(sequences, weights, strict=True):
        if state.request.attention:
            # An interrupted step may have left weights behind.
            del sequence.attention[len(sequence.generated) :]
            sequence.attention.append(own[:, 0])
