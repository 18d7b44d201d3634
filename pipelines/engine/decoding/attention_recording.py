"""Where the lanes of a batch look in their sources, for the requests that ask."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pipelines.engine.decoding.request_state import Row
from pipelines.engine.state.attention_capture import Readout

__all__ = ["note_attention", "readout_for"]


def readout_for(rows: Sequence[Row], tokens: int) -> Readout | None:
    """What collects the attention of a pass over all lanes; None where nobody asks."""
    if not any(row.request.attention for row in rows):
        return None
    wishes = [(row.memory, row.request.attention) for row in rows for _ in row.lanes]
    return Readout([memory for memory, _ in wishes], [heads for _, heads in wishes], tokens)


def note_attention(rows: Sequence[Row], found: Sequence[Tensor]) -> None:
    """Before a step of one token for every lane is decided; found: [heads, tokens, length] each,
    of which the first token counts."""
    lanes = ((row, lane) for row in rows for lane in row.lanes)
    for (row, lane), weights in zip(lanes, found, strict=True):
        if row.request.attention:
            del lane.attention[len(lane.generated) :]  # of a step that was interrupted
            lane.attention.append(weights[:, 0])
