"""What one decoder pass reads, and its geometry for layers that go operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.kv_cache import CrossCache

__all__ = [
    "AttentionMetadata",
    "ForwardBatch",
    "attention_metadata",
    "padded_length",
    "padding_mask",
    "static_attention_metadata",
]

# When rows stand at different positions the cache is read up to a multiple of this, behind a
# mask: few shapes where libraries build a kernel per shape. For float32 on a CPU none does, and
# the padding costs its full time.
_LENGTH_STEP, _CPU_LENGTH_STEP = 64, 8
_SOURCE_STEP = 16


@dataclass(frozen=True, eq=False)
class ForwardBatch:
    """Which rows read how many new tokens.

    shape: (rows, new tokens of each). slots: the rows, a contiguous range. starts: how many tokens
        each has read before.
    memories: one per row, for layers that read each where it lies. sharing: where they are in the
        cross cache, for others.
    readout: collects cross-attention, where anyone wants it.
    """

    shape: tuple[int, int]
    slots: slice
    starts: Sequence[int]
    encoded_sources: tuple[EncodedSource, ...]
    source_groups: SourceGroups
    capture: AttentionCapture | None

    @property
    def length(self) -> int:
        """How long the cache is when the tokens have been read."""
        return max(self.starts) + self.shape[1]

    @property
    def uniform(self) -> bool:
        """Whether all rows stand at one position."""
        return all(start == self.starts[0] for start in self.starts)

    def positions(self, device: torch.device) -> Tensor:
        """Where the new tokens stand, [rows, tokens]."""
        starts = torch.tensor(self.starts, device=device)
        return starts[:, None] + torch.arange(self.shape[1], device=device)

    def places(self, device: torch.device) -> slice | Tensor:
        """The same for an index: a slice where all rows agree."""
        first = self.starts[0]
        return slice(first, first + self.shape[1]) if self.uniform else self.positions(device)

    @property
    def sources(self) -> slice:
        """Slots of the cross cache."""
        return slice(
            self.source_groups.first, self.source_groups.first + len(self.source_groups.widths)
        )


@dataclass(frozen=True, eq=False)
class AttentionMetadata:
    """Worked out once for a step and shared by all layers.

    at: the first new position when it is the same for all rows, else the slots [rows, 1] and all
        new positions [rows, tokens].
    length: how much of the cache is read. mask [rows, 1, tokens, length], added to the scores, or
        None when every row may see all of it.
    source_length, source_mask [sources, 1, 1, source_length]: of the cross cache.
    runs: (how many sources, rows on each of them) where rows share sources; None when each row has
        its own.
    """

    at: int | tuple[Tensor, Tensor]
    length: int
    mask: Tensor | None
    source_length: int
    source_mask: Tensor | None
    runs: tuple[tuple[int, int], ...] | None


def attention_metadata(
    batch: ForwardBatch,
    cross: CrossCache | None,
    longest: int,
    device: torch.device,
    dtype: torch.dtype,
) -> AttentionMetadata:
    """cross: None when memories are read where they lie. longest: how far the cache may be read at
    most."""
    (_, tokens), length = batch.shape, batch.length
    uniform = batch.uniform
    at: int | tuple[Tensor, Tensor] = batch.starts[0]
    mask = None
    if not uniform or tokens > 1:
        positions = batch.positions(device)
        if not uniform:
            exact = dtype == torch.float32 and device.type == "cpu"
            multiple = _CPU_LENGTH_STEP if exact else _LENGTH_STEP
            at = _column(batch.slots, device), positions
            length = padded_length(length, longest, multiple)
        mask = _causal_mask(positions, length, dtype)
    if cross is None:
        return AttentionMetadata(at, length, mask, 0, None, None)
    lengths = cross.lengths[batch.sources]
    source_length = max(lengths)
    if min(lengths) != source_length:
        source_length = min(-(-source_length // _SOURCE_STEP) * _SOURCE_STEP, cross.room)
    source_mask = padding_mask(lengths, source_length, device, dtype)
    return AttentionMetadata(
        at, length, mask, source_length, source_mask, _runs(batch.source_groups)
    )


def static_attention_metadata(
    positions: Tensor,
    length: int,
    source_length: int,
    source_lengths: Tensor | None,
    source_groups: SourceGroups,
    dtype: torch.dtype,
) -> AttentionMetadata:
    """The same with whatever changes from pass to pass in tensors, for the first slots.

    positions: of the new tokens, [rows, tokens]. length, source_length: how much of the caches is
    read. source_lengths [sources]: how much of the sources there is; None: all of it.
    """
    device = positions.device
    source_mask = None
    if source_lengths is not None:
        source_mask = _source_mask(source_lengths, source_length, dtype)
    at = _column(slice(0, len(positions)), device), positions
    mask = _causal_mask(positions, length, dtype)
    return AttentionMetadata(at, length, mask, source_length, source_mask, _runs(source_groups))


def padded_length(length: int, longest: int, multiple: int = _LENGTH_STEP) -> int:
    """How far a cache is read behind a mask."""
    return min(-(-length // multiple) * multiple, longest)


def _column(slots: slice, device: torch.device) -> Tensor:
    return torch.arange(slots.start, slots.stop, device=device)[:, None]


def _causal_mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """[rows, 1, tokens, length], −∞ behind each position."""
    later = torch.arange(length, device=positions.device) > positions[:, :, None]
    return _additive(later, dtype)[:, None]


def _source_mask(lengths: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """[sources, 1, 1, longest], −∞ beyond each length."""
    beyond = torch.arange(longest, device=lengths.device) >= lengths[:, None]
    return _additive(beyond, dtype)[:, None, None]


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores to hide some."""
    mask = torch.zeros(hidden.shape, device=hidden.device, dtype=dtype)
    return mask.masked_fill_(hidden, -torch.inf)


def _runs(source_groups: SourceGroups) -> tuple[tuple[int, int], ...] | None:
    """Neighbouring generations of equal width: (how many, their width); None for one lane each."""
    if all(width == 1 for width in source_groups.widths):
        return None
    return tuple((len(list(same)), width) for width, same in groupby(source_groups.widths))


def padding_mask(
    lengths: Sequence[int], longest: int, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """[rows, 1, 1, longest], −∞ beyond each length; None when nothing is padded."""
    if min(lengths) == longest:
        return None
    return _source_mask(torch.tensor(lengths), longest, dtype).to(device)
