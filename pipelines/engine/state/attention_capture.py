"""Reading out where the decoder looks in its source, for the rows that ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.errors import EngineError

__all__ = ["AttentionCapture"]


@dataclass(frozen=True, eq=False)
class _CaptureRequest:
    row: int
    encoded: EncodedSource
    heads: list[int]
    places: list[int]  # of these heads in the row's answer


class AttentionCapture:
    """Collects cross-attention during one decoder pass.

    The pass itself uses kernels that never write attention down; these few heads are computed
    again beside it.
    """

    def __init__(
        self,
        encoded_sources: Sequence[EncodedSource],
        heads: Sequence[Sequence[tuple[int, int]]],
        tokens: int,
    ) -> None:
        """heads: for each row the (layer, head) pairs it wants. tokens: those of the pass."""
        self.weights = [
            torch.zeros(len(pairs), tokens, encoded.length, device=encoded.device)
            for encoded, pairs in zip(encoded_sources, heads, strict=True)
        ]
        self._pairs = heads
        self._wishes: defaultdict[int, list[_CaptureRequest]] = defaultdict(list)
        for row, (encoded, pairs) in enumerate(zip(encoded_sources, heads, strict=True)):
            for layer in {layer for layer, _ in pairs}:
                places = [i for i, (other, _) in enumerate(pairs) if other == layer]
                wish = _CaptureRequest(row, encoded, [pairs[i][1] for i in places], places)
                self._wishes[layer].append(wish)

    def note(self, layer: int, query: Tensor, scale: float | None) -> None:
        """Take in a layer's cross-attention queries [rows, heads, tokens, head_dim]; scale: what
        scores are multiplied with, None for one over the root of head_dim."""
        for wish in self._wishes[layer]:
            q = query[wish.row, wish.heads].float()
            k = wish.encoded.keys[layer][wish.heads].float()
            scores = q @ k.transpose(1, 2) * (scale or q.shape[-1] ** -0.5)
            self.weights[wish.row][wish.places] = scores.softmax(-1)

    def wanted(self, row: int) -> bool:
        """Whether a row asks for anything."""
        return bool(self._pairs[row])

    def take(self, row: int, layers: Sequence[Tensor]) -> None:
        """Take in a row's cross-attention as transformers reports it, [1, heads, tokens, length]
        a layer, of which the last tokens are those of the pass."""
        for place, (layer, head) in enumerate(self._pairs[row]):
            if layer >= len(layers):
                raise EngineError("the module reported no cross-attention, though it was asked to")
            weights = self.weights[row]
            weights[place] = layers[layer][0, head, -weights.shape[1] :].float()
