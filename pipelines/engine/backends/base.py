"""The protocol of a model as the decoding layer uses it, and of its caches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.sources import Source
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import AttentionCapture
from pipelines.families.architecture import Architecture


class _SlotCache(Protocol):
    """A cache with numbered slots; the used ones are 0 … n − 1."""

    def __len__(self) -> int: ...

    def alloc(self) -> int:
        """Add an empty slot after the others and return its number."""
        ...

    def reorder(self, sources: Sequence[int]) -> None:
        """Make slot i a copy of the former slot sources[i], for all i at once."""
        ...

    def erase(self, slot: int) -> None:
        """Remove NaN from a slot; other slots do not change.

        Even behind a mask NaN would spread to the slot's next user.
        """
        ...

    @property
    def bytes(self) -> int:
        """Memory that is allocated now."""
        ...


class DecoderCache(_SlotCache, Protocol):
    """What the decoder has read, one slot per sequence.

    A pass writes to a slot without lengthening it; `advance` does that.
    """

    @property
    def lengths(self) -> list[int]:
        """Valid tokens of each slot."""
        ...

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """Upper bound of the memory, also while the cache grows. `tokens` and `source` are the
        longest."""
        ...

    def advance(self, slots: slice, tokens: int) -> None:
        """Count `tokens` more tokens of each slot as valid."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Discard all but the first `length` tokens of a slot."""
        ...


class SourceCache(_SlotCache, Protocol):
    """Encoded sources of the running requests, one slot each, where the backend copies them."""

    def bytes_for(self, slots: int, source: int) -> int:
        """Upper bound of the memory, as DecoderCache.bytes_for."""
        ...

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Put a source into a slot."""
        ...


class DecodePass(Protocol):
    """A decoder pass over caches."""

    def __call__(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
        /,
    ) -> Tensor:
        """Run one pass. The cache is written but not advanced.

        Args:
            ids: [sequences][tokens]: equally many new tokens of each sequence (a beam or sample).
                Sequences may have different past lengths.
            slots: slots of the sequences in the decoder cache.
            encoded_sources: one per sequence. Neighboring sequences on one source repeat
                the same object: they are compared by identity.
            capture: collects cross-attention weights.
            source_groups: which sequences share a source; by default none.

        Returns:
            Hidden states [sequences, tokens, d_model], for `logits` and `argmax` of the backend.
        """
        ...


@dataclass(frozen=True, eq=False)
class Caches:
    """What the decoder has read, a slot for each sequence; the sources, a slot for each request;
    and the pass of their backend that fills them."""

    tokens: DecoderCache
    sources: SourceCache
    decode: DecodePass

    @property
    def bytes(self) -> int:
        """Memory that is allocated now."""
        return self.tokens.bytes + self.sources.bytes

    def bytes_for(
        self, sequences: int, tokens: int, encoded_sources: Sequence[EncodedSource]
    ) -> int:
        """Upper bound of the bytes needed, including what the caches hold and would keep.

        Args:
            sequences: Slots of the decoder cache.
            tokens: Upper bound of the tokens in each.
            encoded_sources: One for each slot of the source cache.
        """
        source = max((encoded.length for encoded in encoded_sources), default=0)
        return self.tokens.bytes_for(sequences, tokens, source) + self.sources.bytes_for(
            len(encoded_sources), source
        )

    def add_source(self, encoded: EncodedSource) -> None:
        """Put a source into a new slot, and make an empty slot for its first sequence."""
        self.tokens.alloc()
        self.sources.store(self.sources.alloc(), encoded)


class Backend(Protocol):
    """A model that decodes tokens into cache slots: the native one, or a transformers module."""

    plan: ComputePlan
    architecture: Architecture
    source: Source

    @property
    def reports_attention(self) -> bool:
        """Whether `decode` accepts a capture of cross-attention weights."""
        ...

    @property
    def folder(self) -> Path:
        """The model folder, or the name of a wrapped module."""
        ...

    @property
    def source_dtype(self) -> torch.dtype:
        """Dtype of encoded sources."""
        ...

    def owns(self, encoded: EncodedSource) -> bool:
        """Whether this backend can decode from a source."""
        ...

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the weights; None if that is not known."""
        ...

    def caches(self) -> Caches:
        """Empty caches for a batch of requests."""
        ...

    @property
    def sources_at_once(self) -> int | None:
        """How many sources `encode` computes side by side; None for all of them."""
        ...

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Encode validated sources."""
        ...

    def encode_ahead(self, source: Any) -> Future[EncodedSource] | None:
        """Begin to encode a source in the background; None where that gains nothing."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [n, d_model] → float32 [n, vocab], which the caller may overwrite."""
        ...

    def argmax(
        self, hidden: Tensor, suppressed: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """The most likely tokens, as the function `argmax` in model.lm_head.

        Args:
            hidden: [n, d_model].
            suppressed: tensors of ids that are not chosen.
            logprobs: whether to return log-probabilities instead of logits.

        Returns:
            Tokens [n], and their logits or log-probabilities [n].
        """
        ...
