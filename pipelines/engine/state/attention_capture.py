"""Cross-attention weights of selected heads, collected during a decoder pass."""

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
    """The heads of one layer that a row captures; places: their indices in the row's result."""

    row: int
    encoded: EncodedSource
    heads: list[int]
    places: list[int]


class AttentionCapture:
    """Collects cross-attention weights during one decoder pass.

    The kernels of the pass never store attention weights; those of the few requested heads are
    computed again from their queries.

    Args:
        encoded_sources: the source of each row.
        heads: for each row its (layer, head) pairs; may be empty.
        tokens: new tokens per row of the pass.

    Attributes:
        weights: for each row float32 [pairs, tokens, source length].
    """

    def __init__(
        self,
        encoded_sources: Sequence[EncodedSource],
        heads: Sequence[Sequence[tuple[int, int]]],
        tokens: int,
    ) -> None:
        self.weights = [
            torch.zeros(len(pairs), tokens, encoded.length, device=encoded.device)
            for encoded, pairs in zip(encoded_sources, heads, strict=True)
        ]
        self._pairs = heads
        self._requests: defaultdict[int, list[_CaptureRequest]] = defaultdict(list)  # by layer
        for row, (encoded, pairs) in enumerate(zip(encoded_sources, heads, strict=True)):
            for layer in {layer for layer, _ in pairs}:
                places = [i for i, (other, _) in enumerate(pairs) if other == layer]
                request = _CaptureRequest(row, encoded, [pairs[i][1] for i in places], places)
                self._requests[layer].append(request)

    def add_queries(self, layer: int, query: Tensor, scale: float | None) -> None:
        """Compute the weights of one layer.

        Args:
            query: cross-attention queries [rows, heads, tokens, head_dim].
            scale: factor on the scores; None for 1 / √head_dim.
        """
        for request in self._requests[layer]:
            q = query[request.row, request.heads].float()
            k = request.encoded.keys[layer][request.heads].float()
            scores = q @ k.transpose(1, 2) * (scale or q.shape[-1] ** -0.5)
            self.weights[request.row][request.places] = scores.softmax(-1)

    def captures(self, row: int) -> bool:
        """Whether any head of a row is captured."""
        return bool(self._pairs[row])

    def add_weights(self, row: int, layers: Sequence[Tensor]) -> None:
        """Copy a row's weights out of what transformers reports as cross_attentions.

        Args:
            layers: [1, heads, tokens, length] per layer; the pass's tokens are the last ones.

        Raises:
            EngineError: a requested layer is missing.
        """
        for place, (layer, head) in enumerate(self._pairs[row]):
            if layer >= len(layers):
                raise EngineError("the module reported no cross-attention, though it was asked to")
            weights = self.weights[row]
            weights[place] = layers[layer][0, head, -weights.shape[1] :].float()
