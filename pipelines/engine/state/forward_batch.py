"""The inputs of one decoder pass, and what its attention layers derive from them.

`ForwardBatch` describes a pass. `AttentionMetadata` holds masks and indices for layers that run
operation by operation; it is computed once per pass and shared by all layers. The compiled kernels
read the batch directly. `AttentionCapture` collects cross-attention weights of a pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.kv_cache import CrossCache
from pipelines.errors import EngineError

# When sequences have different lengths, the cache is read up to a multiple of this, behind a
# mask: libraries that build a kernel per shape then see few shapes. For float32 on a CPU no
# library does, and the padding costs its full time, so the multiple is smaller there.
_LENGTH_STEP, _CPU_LENGTH_STEP = 64, 8
_SOURCE_STEP = 16


@dataclass(frozen=True, eq=False)
class ForwardBatch:
    """One decoder pass: the same number of new tokens for each of some sequences.

    Attributes:
        shape: (sequences, new tokens per sequence).
        slots: slots of the sequences in the KV cache, a contiguous range.
        past_lengths: for each sequence, tokens in the cache before this pass.
        encoded_sources: one per sequence, for layers that read sources in place.
        source_groups: where the sources are in the cross cache, for layers that read that.
        capture: collects cross-attention weights, or None.
    """

    shape: tuple[int, int]
    slots: slice
    past_lengths: Sequence[int]
    encoded_sources: tuple[EncodedSource, ...]
    source_groups: SourceGroups
    capture: AttentionCapture | None

    @property
    def kv_length(self) -> int:
        """Tokens of the longest sequence in the cache after this pass."""
        return max(self.past_lengths) + self.shape[1]

    @property
    def uniform(self) -> bool:
        """Whether all sequences have the same past length."""
        return all(length == self.past_lengths[0] for length in self.past_lengths)

    def positions(self, device: torch.device) -> Tensor:
        """Positions of the new tokens, int64 [sequences, tokens]."""
        starts = torch.tensor(self.past_lengths, device=device)
        return starts[:, None] + torch.arange(self.shape[1], device=device)

    def position_index(self, device: torch.device) -> slice | Tensor:
        """The same as an index into a table of positions: a slice if all sequences agree."""
        first = self.past_lengths[0]
        return slice(first, first + self.shape[1]) if self.uniform else self.positions(device)

    @property
    def source_slots(self) -> slice:
        """Slots of the sources in the cross cache."""
        return slice(
            self.source_groups.first_slot,
            self.source_groups.first_slot + len(self.source_groups.sequence_counts),
        )


@dataclass(frozen=True, eq=False)
class AttentionMetadata:
    """Masks and indices of one pass, shared by all layers.

    Attributes:
        write_index: where new keys and values are stored: their first position if that is the same
            for all sequences, else (slots [sequences, 1], positions [sequences, tokens]).
        kv_length: positions of the KV cache that are read.
        mask: [sequences, 1, tokens, kv_length], added to the scores; None if all
            positions are visible to every sequence.
        source_length: positions of the cross cache that are read.
        source_mask: [sources, 1, 1, source_length], added to the scores, or None.
        source_runs: consecutive sources with the same number of sequences, as (sources, sequences
            on each); None if each sequence has a source of its own.
        rotation: cosines and sines of the new tokens' angles, for rotary positions, or None.
    """

    write_index: int | tuple[Tensor, Tensor]
    kv_length: int
    mask: Tensor | None
    source_length: int
    source_mask: Tensor | None
    source_runs: tuple[tuple[int, int], ...] | None
    rotation: tuple[Tensor, Tensor] | None = None


def attention_metadata(
    batch: ForwardBatch,
    cross: CrossCache | None,
    max_length: int,
    device: torch.device,
    dtype: torch.dtype,
) -> AttentionMetadata:
    """Compute the metadata of a pass.

    Args:
        cross: None when sources are read in place.
        max_length: longest sequence; bounds how far the cache is read.
        dtype: of the masks.
    """
    (_, tokens), kv_length = batch.shape, batch.kv_length
    uniform = batch.uniform
    write_index: int | tuple[Tensor, Tensor] = batch.past_lengths[0]
    mask = None
    if not uniform or tokens > 1:
        positions = batch.positions(device)
        if not uniform:
            exact = dtype == torch.float32 and device.type == "cpu"
            multiple = _CPU_LENGTH_STEP if exact else _LENGTH_STEP
            write_index = _slot_column(batch.slots, device), positions
            kv_length = padded_length(kv_length, max_length, multiple)
        mask = _causal_mask(positions, kv_length, dtype)
    if cross is None:
        return AttentionMetadata(write_index, kv_length, mask, 0, None, None)
    lengths = cross.lengths[batch.source_slots]
    source_length = max(lengths)
    if min(lengths) != source_length:
        padded = -(-source_length // _SOURCE_STEP) * _SOURCE_STEP
        source_length = min(padded, cross.position_capacity)
    source_mask = padding_mask(lengths, source_length, device, dtype)
    runs = _source_runs(batch.source_groups)
    return AttentionMetadata(write_index, kv_length, mask, source_length, source_mask, runs)


def static_attention_metadata(
    positions: Tensor,
    kv_length: int,
    source_length: int,
    source_lengths: Tensor | None,
    source_groups: SourceGroups,
    dtype: torch.dtype,
) -> AttentionMetadata:
    """The metadata for a CUDA graph: tensors hold whatever changes between replays.

    The sequences use the first slots of the caches.

    Args:
        positions: of the new tokens, [sequences, tokens].
        kv_length, source_length: positions of the caches that are read.
        source_lengths: [sources], or None if all sources have `source_length` positions.
        dtype: of the masks.
    """
    device = positions.device
    source_mask = None
    if source_lengths is not None:
        source_mask = _source_mask(source_lengths, source_length, dtype)
    write_index = _slot_column(slice(0, len(positions)), device), positions
    mask = _causal_mask(positions, kv_length, dtype)
    runs = _source_runs(source_groups)
    return AttentionMetadata(write_index, kv_length, mask, source_length, source_mask, runs)


def padded_length(length: int, max_length: int, multiple: int = _LENGTH_STEP) -> int:
    """`length` rounded up to a multiple, at most `max_length`."""
    return min(-(-length // multiple) * multiple, max_length)


def padding_mask(
    lengths: Sequence[int], max_length: int, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """A mask for right-padded sequences.

    Returns:
        [batch, 1, 1, max_length], −∞ beyond each length; None if there is no padding.
    """
    if min(lengths) == max_length:
        return None
    return _source_mask(torch.tensor(lengths), max_length, dtype).to(device)


def _slot_column(slots: slice, device: torch.device) -> Tensor:
    """Slots [sequences, 1], to broadcast against positions [sequences, tokens]."""
    return torch.arange(slots.start, slots.stop, device=device)[:, None]


def _causal_mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """positions [sequences, tokens] → [sequences, 1, tokens, length], −∞ after each position."""
    later = torch.arange(length, device=positions.device) > positions[:, :, None]
    return _additive_mask(later, dtype)[:, None]


def _source_mask(lengths: Tensor, max_length: int, dtype: torch.dtype) -> Tensor:
    """lengths [sources] → [sources, 1, 1, max_length], −∞ beyond each length."""
    beyond = torch.arange(max_length, device=lengths.device) >= lengths[:, None]
    return _additive_mask(beyond, dtype)[:, None, None]


def _additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask of hidden positions → 0 and −∞, to be added to the scores."""
    mask = torch.zeros(hidden.shape, device=hidden.device, dtype=dtype)
    return mask.masked_fill_(hidden, -torch.inf)


def _source_runs(source_groups: SourceGroups) -> tuple[tuple[int, int], ...] | None:
    """As AttentionMetadata.source_runs."""
    if all(count == 1 for count in source_groups.sequence_counts):
        return None
    return tuple((len(list(same)), count) for count, same in groupby(source_groups.sequence_counts))


@dataclass(frozen=True, eq=False)
class _CaptureRequest:
    """The heads of one layer that a sequence of the pass captures: their indices in its result."""

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
