"""Preallocated, slot-indexed caches of keys and values.

The used slots are always 0 … n − 1: `reorder` moves the remaining slots into the gaps of those
that leave, so that a pass reads plain views and never gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.engine.state.encoded_source import EncodedSource

# Source positions are reserved in multiples of this, so that a slightly longer source does not
# reallocate the whole cache.
_SOURCE_STEP = 32

# Target positions are reserved for so many tokens, then twice as many, and so on. If the longest
# sequence were reserved from the beginning, slots would lie at distances that share few lines of
# the CPU's caches: steps of 32 sequences took a third longer.
_TARGET_STEP = 64


@dataclass(frozen=True)
class StateSpec:
    """What a block of a decoder keeps of each token: keys and values, or a recurrent state.

    Every position is kept, so that a sequence can be taken back to an earlier token.

    Attributes:
        parts: Tensors, such as 2 for keys and values.
        heads: Vectors of a part.
        width: Numbers of a vector.
    """

    parts: int
    heads: int
    width: int


class _SlotCache:
    """Slot bookkeeping that both caches share.

    Per layer one tensor [parts, slot capacity, heads, position capacity, width]: keys and values
    are two parts, so that one copy writes both.

    Args:
        states: What each layer keeps of a position.

    Attributes:
        lengths: valid positions of each used slot.
        position_capacity: positions that are allocated per slot.
        storage_key: an object that is replaced whenever the tensors are reallocated.
    """

    def __init__(
        self,
        states: Sequence[StateSpec],
        position_capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        # zeros, not empty: masked positions still enter a product, where NaN × 0 is NaN.
        # The system assigns memory to the pages only when they are written.
        self._layers = [
            torch.zeros(
                state.parts,
                0,
                state.heads,
                position_capacity,
                state.width,
                device=device,
                dtype=dtype,
            )
            for state in states
        ]
        self.position_capacity, self.storage_key = position_capacity, object()
        self.lengths: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def layers(self) -> Sequence[Tensor]:
        """The tensors: [parts, slot capacity, heads, position capacity, width] per layer."""
        return self._layers

    @property
    def slot_capacity(self) -> int:
        """Slots that are allocated."""
        return self._layers[0].shape[1]

    def alloc(self) -> int:
        """Add an empty slot and return its number; doubles the slot capacity when needed."""
        slot = len(self.lengths)
        if slot == self.slot_capacity:
            self._grow(slots=max(1, slot * 2), positions=self.position_capacity)
        self.lengths.append(0)
        return slot

    def read(self, layer: int, slots: slice, length: int) -> tuple[Tensor, ...]:
        """Views [sequences, heads, length, width] of the parts of the first `length` positions."""
        return self._layers[layer][:, slots, :, :length].unbind()

    def reorder(self, sources: Sequence[int]) -> None:
        """Make slot i a copy of the former slot sources[i], for all i at once.

        Afterwards len(sources) slots are in use. Only slots whose content changes are copied.
        """
        while len(sources) > self.slot_capacity:
            self._grow(slots=2 * self.slot_capacity, positions=self.position_capacity)
        moved = [(slot, source) for slot, source in enumerate(sources) if slot != source]
        longest = max((self.lengths[source] for _, source in moved), default=0)
        if longest:
            device = self._layers[0].device
            to, origin = torch.tensor(moved, device=device).unbind(1)
            for layer in self._layers:
                layer[:, to, :, :longest] = layer[:, origin, :, :longest]
        self.lengths = [self.lengths[source] for source in sources]

    def erase(self, slot: int) -> None:
        """Fill a slot with zeros: NaN would spread from behind a mask to the slot's next user."""
        for layer in self._layers:
            layer[:, slot].zero_()

    def _grow(self, slots: int, positions: int) -> None:
        """Reallocate the tensors with this capacity and copy what is in use."""
        used, longest = len(self.lengths), max(self.lengths, default=0)
        for i, old in enumerate(self._layers):
            parts, _, heads, _, width = old.shape
            new = old.new_zeros(parts, slots, heads, positions, width)
            new[:, :used, :, :longest] = old[:, :used, :, :longest]
            self._layers[i] = new
        self.position_capacity, self.storage_key = positions, object()

    def _bytes_for(self, slots: int, positions: int) -> int:
        """Upper bound of the memory for so many slots in use.

        Capacity doubles as it grows, and while the tensors are reallocated or reordered, one layer
        exists twice.
        """
        capacity = max(1, self.slot_capacity)
        while capacity < slots:
            capacity *= 2
        positions = max(positions, self.position_capacity)
        layers = [
            parts * capacity * heads * positions * width * layer.element_size()
            for layer in self._layers
            for parts, _, heads, _, width in [layer.shape]
        ]
        return sum(layers) + max(layers)

    @property
    def bytes(self) -> int:
        """Memory that is allocated now."""
        return sum(layer.numel() * layer.element_size() for layer in self._layers)


class KVCache(_SlotCache):
    """What the blocks of a decoder keep, one slot per sequence of at most `max_length` tokens.

    The first `lengths[slot]` tokens of a slot are valid. `write` does not lengthen a slot; only
    `advance` does, once a whole pass has succeeded, so that a pass can be repeated after an error.
    """

    def __init__(
        self,
        states: Sequence[StateSpec],
        max_length: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._max_length = max_length
        super().__init__(states, self._positions_for(1), device, dtype)

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """Upper bound of the memory for so many slots of so many tokens; `source` is ignored."""
        return self._bytes_for(slots, self._positions_for(tokens))

    def reserve(self, tokens: int) -> None:
        """Make every slot large enough for so many tokens."""
        if tokens > self.position_capacity:
            self._grow(slots=self.slot_capacity, positions=self._positions_for(tokens))

    def _positions_for(self, tokens: int) -> int:
        positions = _TARGET_STEP
        while positions < tokens:
            positions *= 2
        return min(positions, self._max_length)

    def write(
        self, layer: int, slots: slice, index: int | tuple[Tensor, Tensor], state: Tensor
    ) -> None:
        """Store what a layer keeps of new tokens.

        Args:
            slots: one per sequence.
            index: the first position if it is the same for all sequences, which makes this one
                plain copy; else (slots [sequences, 1], positions [sequences, tokens]).
            state: [sequences, tokens, parts, heads, width].
        """
        tokens = state.shape[1]
        if isinstance(index, int):
            target = self._layers[layer][:, slots, :, index : index + tokens]
            target.copy_(state.permute(2, 0, 3, 1, 4))
            return
        self._layers[layer].permute(1, 3, 0, 2, 4).index_put_(index, state)

    def advance(self, slots: slice, tokens: int) -> None:
        """Count `tokens` more tokens of each slot as valid."""
        for slot in range(slots.start, slots.stop):
            self.lengths[slot] += tokens

    def truncate(self, slot: int, length: int) -> None:
        """Discard all but the first `length` tokens of a slot.

        Raises:
            IndexError: the slot holds fewer tokens.
        """
        if not 0 <= length <= self.lengths[slot]:
            raise IndexError(f"slot {slot} holds {self.lengths[slot]} tokens, not {length}")
        self.lengths[slot] = length


class CrossCache(_SlotCache):
    """Cross-attention keys and values of sources, copied into one tensor per layer.

    One product then serves all sequences of a pass. The sequences of a request share a slot. For
    layers that run operation by operation (text: copying 25 positions once costs less than a loop
    over the sequences at every step), and for CUDA graphs (text and audio), which need fixed
    addresses. Otherwise sources are read in place, with NullCrossCache.
    """

    def __init__(
        self, layers: int, heads: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        states = [StateSpec(2, heads, head_dim)] * layers
        super().__init__(states, _SOURCE_STEP, device, dtype)

    def bytes_for(self, slots: int, source: int) -> int:
        """Upper bound of the memory for so many slots of so many source positions."""
        return self._bytes_for(slots, _rounded(source))

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Copy a source into a slot; grows for a source longer than all before."""
        if encoded.length > self.position_capacity:
            self._grow(slots=self.slot_capacity, positions=_rounded(encoded.length))
        for layer, keys, values in zip(self._layers, encoded.keys, encoded.values, strict=True):
            layer[0, slot, :, : encoded.length] = keys
            layer[1, slot, :, : encoded.length] = values
        self.lengths[slot] = encoded.length


class NullCrossCache:
    """Stands in for CrossCache where sources are read in place: counts slots, stores no tensors."""

    bytes = 0

    def __init__(self) -> None:
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def alloc(self) -> int:
        self._count += 1
        return self._count - 1

    def bytes_for(self, slots: int, source: int) -> int:
        return 0

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Does nothing."""

    def reorder(self, sources: Sequence[int]) -> None:
        self._count = len(sources)

    def erase(self, slot: int) -> None:
        """Does nothing."""


def _rounded(source: int) -> int:
    """A number of source positions, rounded up to a multiple of `_SOURCE_STEP`."""
    return -(-source // _SOURCE_STEP) * _SOURCE_STEP
