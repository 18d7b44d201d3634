"""Token ids, which enter through an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.model.layers import Embedding, LayerBuilder, embedding_name
from pipelines.engine.model.sources.base import (
    EncoderLayers,
    Source,
    SourceSpan,
    Stem,
    check_vocabulary,
)
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import RequestError
from pipelines.families.architecture import Architecture

# Tokens encoded in one pass on a CPU, so that activations between layers stay in its caches.
_PASS_TOKENS = 512
_EXAMPLE_TOKENS, _SHORT_TOKENS = 20, 8


class TokenSource(Source):
    """Sequences of token ids, of any lengths."""

    is_text = True

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[list[int]]:
        return [self._checked(source) for source in sources]

    def _checked(self, source: Sequence[int]) -> list[int]:
        architecture = self._architecture
        ids = [int(i) for i in source]
        if not ids:
            raise RequestError("a source holds no tokens")
        if len(ids) > architecture.max_source_positions:
            raise RequestError(
                f"a source of {len(ids)} tokens is longer than the model's "
                f"{architecture.max_source_positions} positions; split it"
            )
        check_vocabulary(ids, architecture.source_vocab_size, "a source")
        return ids

    def batches(self, sources: Sequence[Any]) -> list[list[int]]:
        """Return batches of similar length: one source, or several with at most _PASS_TOKENS
        tokens, padding included."""
        batches: list[list[int]] = []
        for index in sorted(range(len(sources)), key=lambda index: len(sources[index])):
            if not batches or (len(batches[-1]) + 1) * len(sources[index]) > _PASS_TOKENS:
                batches.append([])
            batches[-1].append(index)
        return batches

    def example(self, *, short: bool = False) -> list[int]:
        architecture, generator = self._architecture, torch.Generator().manual_seed(0)
        count = min(
            _SHORT_TOKENS if short else _EXAMPLE_TOKENS, architecture.max_source_positions - 1
        )
        ids = torch.randint(0, architecture.source_vocab_size, (count,), generator=generator)
        return [*ids.tolist(), architecture.eos_ids[0]]

    def stem(self, build: LayerBuilder) -> Stem:
        return _EmbeddedTokens(build, self._architecture)


class _EmbeddedTokens:
    """The token embedding of an encoder."""

    def __init__(self, build: LayerBuilder, architecture: Architecture) -> None:
        name = embedding_name(build.weights, architecture, "encoder")
        self.embedding = Embedding(build, name, architecture.source_vocab_size)
        self._pad_id, self._device = architecture.pad_id, build.device

    def encode(
        self, layers: EncoderLayers, sources: Sequence[Sequence[int]], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        lengths = [len(source) for source in sources]
        if layers.can_run_flat:
            x = layers.run_flat(
                self.embedding(torch.tensor([*chain.from_iterable(sources)])), lengths
            )
            stops = accumulate(lengths)
            spans = [(0, stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]
            return x[None], spans
        ids = torch.full((len(sources), max(lengths)), self._pad_id)
        for index, source in enumerate(sources):
            ids[index, : len(source)] = torch.tensor(source)
        x = layers.run_padded(self.embedding(ids.to(self._device)), lengths)
        return x, [(index, 0, length) for index, length in enumerate(lengths)]
