"""Where the lanes of a batch look in their sources, for the requests that ask."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.state.attention_capture import AttentionCapture

__all__ = ["record_attention", "make_attention_capture"]


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
