"""What a running batch needs of a model, whoever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pipelines.engine.model.precision import Plan
from pipelines.engine.state.attention_capture import Readout
from pipelines.engine.state.encoded_source import Memory, Sharing
from pipelines.engine.weights.architecture import Architecture

__all__ = ["Backend", "Slots", "Sources"]


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


class Slots(_Reordered, Protocol):
    """What each lane has read. Reading does not lengthen a slot: `advance` does."""

    @property
    def lengths(self) -> list[int]: ...

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """What it may need at the worst, while growing too, with so many slots in use, of at most
        `tokens` tokens on sources of at most `source` positions."""
        ...

    def advance(self, slots: slice, tokens: int) -> None: ...

    def truncate(self, slot: int, length: int) -> None: ...


class Sources(_Reordered, Protocol):
    """The memories of the generations, where they are kept side by side."""

    def bytes_for(self, slots: int, source: int) -> int:
        """As Slots.bytes_for."""
        ...

    def store(self, slot: int, memory: Memory) -> None: ...


class Backend(Protocol):
    """A model that reads tokens into slots: the native network, or one of transformers'."""

    plan: Plan
    architecture: Architecture

    @property
    def follows_attention(self) -> bool:
        """Whether it can report where its decoder looks."""
        ...

    @property
    def folder(self) -> Path: ...

    @property
    def memory_dtype(self) -> torch.dtype: ...

    def owns(self, memory: Memory) -> bool: ...

    def caches(self) -> tuple[Any, Any]:
        """Empty Slots and Sources, which `decode` of this very backend understands."""
        ...

    def encode(self, sources: Sequence[Any]) -> list[Memory]:
        """Sources that have been checked → memories, in one pass."""
        ...

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        memories: Sequence[Memory],
        cache: Any,
        cross: Any,
        readout: Readout | None = None,
        sharing: Sharing | None = None,
    ) -> Tensor:
        """One pass over the lanes `slots`, as many new tokens for each → states [lanes, tokens,
        width]. The cache is written, not advanced."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """States [n, width] → float32 [n, vocab], which the caller may change."""
        ...

    def likeliest(
        self, hidden: Tensor, ruled_out: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """States [n, width] → of each the likeliest token other than these ids, and its logit or
        log-probability."""
        ...
