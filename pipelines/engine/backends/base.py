"""What a running batch needs of a model, whoever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.weights.architecture import Architecture

__all__ = ["Backend", "DecoderCache", "SourceCache"]


class _Reordered(Protocol):
    def __len__(self) -> int: ...

    def alloc(self) -> int:
        """A new slot, empty, behind the others."""
        ...

    def reorder(self, sources: Sequence[int]) -> None:
        """Slot i becomes a copy of what slot sources[i] was."""
        ...

    def erase(self, slot: int) -> None:
        """Put zeros for NaN that a slot may hold: behind a mask, too, NaN would spread to the
        next one there. Other slots are left as they are."""
        ...

    @property
    def bytes(self) -> int: ...


class DecoderCache(_Reordered, Protocol):
    """What each lane has read. Reading does not lengthen a slot: `advance` does."""

    @property
    def lengths(self) -> list[int]: ...

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """What it may need at the worst, while growing too, with so many slots in use, of at most
        `tokens` tokens on sources of at most `source` positions."""
        ...

    def advance(self, slots: slice, tokens: int) -> None: ...

    def truncate(self, slot: int, length: int) -> None: ...


class SourceCache(_Reordered, Protocol):
    """The memories of the generations, where they are kept side by side."""

    def bytes_for(self, slots: int, source: int) -> int:
        """As Slots.bytes_for."""
        ...

    def store(self, slot: int, encoded: EncodedSource) -> None: ...


class Backend(Protocol):
    """A model that reads tokens into slots: the native network, or one of transformers'."""

    plan: ComputePlan
    architecture: Architecture

    @property
    def reports_attention(self) -> bool:
        """Whether it can report where its decoder looks."""
        ...

    @property
    def folder(self) -> Path: ...

    @property
    def source_dtype(self) -> torch.dtype: ...

    def owns(self, encoded: EncodedSource) -> bool: ...

    def caches(self) -> tuple[Any, Any]:
        """Empty Slots and Sources, which `decode` of this very backend understands."""
        ...

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Sources that have been checked → memories, in one pass."""
        ...

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        cache: Any,
        cross: Any,
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """One pass over the lanes `slots`, as many new tokens for each → states [lanes, tokens,
        width]. The cache is written, not advanced."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """States [n, width] → float32 [n, vocab], which the caller may change."""
        ...

    def argmax(
        self, hidden: Tensor, ruled_out: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """States [n, width] → of each the likeliest token other than these ids, and its logit or
        log-probability."""
        ...
