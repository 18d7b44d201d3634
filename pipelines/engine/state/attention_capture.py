"""Cross-attention weights of selected heads, collected during a decoder pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.errors import EngineError


@dataclass(frozen=True, eq=False)
class _CaptureRequest:
    """The heads of one layer that a sequence captures.

    Attributes:
        sequence: Index in the pass.
        indices: Of the heads in the sequence's result.
    """

    sequence: int
    encoded: EncodedSource
    heads: list[int]
    indices: list[int]


class AttentionCapture:
    """Collects cross-attention weights during one decoder pass.

    The kernels of the pass never store attention weights; those of the few requested heads are
    computed again from their queries.

    Args:
        encoded_sources: the source of each sequence.
        heads: for each sequence its (layer, head) pairs; may be empty.
        tokens: new tokens per sequence of the pass.

    Attributes:
        weights: for each sequence float32 [pairs, tokens, source length].
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
        for sequence, (encoded, pairs) in enumerate(zip(encoded_sources, heads, strict=True)):
            for layer in {layer for layer, _ in pairs}:
                indices = [i for i, (other, _) in enumerate(pairs) if other == layer]
                request = _CaptureRequest(
                    sequence, encoded, [pairs[i][1] for i in indices], indices
                )
                self._requests[layer].append(request)

    def add_queries(self, layer: int, query: Tensor, scale: float | None) -> None:
        """Compute the weights of one layer.

        Args:
            query: cross-attention queries [sequences, heads, tokens, head_dim].
            scale: factor on the scores; None for 1 / √head_dim.
        """
        for request in self._requests[layer]:
            q = query[request.sequence, request.heads].float()
            k = request.encoded.keys[layer][request.heads].float()
            scores = q @ k.transpose(1, 2) * (scale or q.shape[-1] ** -0.5)
            self.weights[request.sequence][request.indices] = scores.softmax(-1)

    def captures(self, sequence: int) -> bool:
        """Whether any head of a sequence is captured."""
        return bool(self._pairs[sequence])

    def add_weights(self, sequence: int, layers: Sequence[Tensor]) -> None:
        """Copy a sequence's weights out of what transformers reports as cross_attentions.

        Args:
            layers: [1, heads, tokens, length] per layer; the pass's tokens are the last ones.

        Raises:
            EngineError: a requested layer is missing.
        """
        for index, (layer, head) in enumerate(self._pairs[sequence]):
            if layer >= len(layers):
                raise EngineError("the module reported no cross-attention, though it was asked to")
            weights = self.weights[sequence]
            weights[index] = layers[layer][0, head, -weights.shape[1] :].float()
