"""Decoder passes over the sequences of a batch, and the caches that they fill."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.backends.base import Backend, DecoderCache
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import record_token_probs
from pipelines.engine.state.encoded_source import SourceGroups
from pipelines.engine.state.forward_batch import AttentionCapture


class ModelRunner:
    """The caches of a batch, and the passes that fill them."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.reset_caches()

    def reset_caches(self) -> None:
        """Replace the caches by empty ones."""
        self.caches = self.backend.caches()

    @property
    def cache(self) -> DecoderCache:
        """The decoder cache: a slot for each sequence."""
        return self.caches.tokens

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
        return self.caches.decode(ids, slots, encoded_sources, capture, source_groups)

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
            self.record_prompt_probs(state, hidden_states[0])
            hidden_states = hidden_states[len(state.sequences) :]

    def record_prompt_probs(self, state: RequestState, hidden_states: Tensor) -> None:
        """Record the requested probabilities from hidden states [positions, d_model], those of the
        first prompt positions."""
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

    weights: for each sequence [heads, tokens, source length]; the first token counts.
    """
    sequences = ((state, sequence) for state in states for sequence in state.sequences)
    for (state, sequence), own in zip(sequences, weights, strict=True):
        if state.request.attention:
            # An interrupted step may have left weights behind.
            del sequence.attention[len(sequence.generated) :]
            sequence.attention.append(own[:, 0])
