"""Preallocated, slot-indexed caches of keys and values.

Used slots are always 0 … n − 1: what leaves is overwritten by what stays, so that a step reads
plain views and never gathers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.state.encoded_source import EncodedSource

__all__ = ["CrossCache", "NullCrossCache", "KVCache"]

# Source positions are reserved in multiples of this, so that a slightly longer source does not
# move the whole cache.
_SOURCE_STEP = 32

# Targets get room for so many tokens, then twice as many, and so on. Room for the longest from the
# beginning would put the rows at distances that share few lines of the CPU's caches: steps of 32
# rows took a third longer.
_TARGET_STEP = 64


class _SlotCache:
    """The slot bookkeeping both caches share.

    Per layer one tensor [2, slots, heads, room, head_dim]: keys and values together, so that one
    copy writes both. home: another object whenever they have moved in memory.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        room: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._shape = (heads, head_dim)
        # zeros, not empty: masked positions still enter a product, where NaN × 0 is NaN.
        # The memory is only touched, and so only taken, when written.
        self._layers = [
            torch.zeros(2, 0, heads, room, head_dim, device=device, dtype=dtype)
            for _ in range(layers)
        ]
        self.room, self.home = room, object()
        self.lengths: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def layers(self) -> Sequence[Tensor]:
        """[2, slots, heads, room, head_dim] each."""
        return self._layers

    @property
    def capacity(self) -> int:
        """For how many slots there is room."""
        return self._layers[0].shape[1]

    def alloc(self) -> int:
        """A new slot, empty. Doubles the room for slots when they run out."""
        slot = len(self.lengths)
        if slot == self.capacity:
            self._grow(slots=max(1, slot * 2), room=self.room)
        self.lengths.append(0)
        return slot

    def reorder(self, sources: Sequence[int]) -> None:
        """Slot i becomes a copy of what slot sources[i] was, for all i at once; these are the
        used slots from then on. Only what changes its place is copied.
        """
        while len(sources) > self.capacity:
            self._grow(slots=2 * self.capacity, room=self.room)
        moved = [(slot, source) for slot, source in enumerate(sources) if slot != source]
        longest = max((self.lengths[source] for _, source in moved), default=0)
        if longest:
            device = self._layers[0].device
            to, origin = torch.tensor(moved, device=device).unbind(1)
            for layer in self._layers:
                layer[:, to, :, :longest] = layer[:, origin, :, :longest]
        self.lengths = [self.lengths[source] for source in sources]

    def erase(self, slot: int) -> None:
        """As Slots.erase."""
        for layer in self._layers:
            layer[:, slot].zero_()

    def _grow(self, slots: int, room: int) -> None:
        heads, head_dim = self._shape
        used, longest = len(self.lengths), max(self.lengths, default=0)
        for i, old in enumerate(self._layers):
            new = torch.zeros(2, slots, heads, room, head_dim, device=old.device, dtype=old.dtype)
            new[:, :used, :, :longest] = old[:, :used, :, :longest]
            self._layers[i] = new
        self.room, self.home = room, object()

    def _bytes_for(self, slots: int, room: int) -> int:
        """What this needs at the worst to have so many slots in use: their number doubles as it
        grows, and while it grows or moves them, a layer is there twice."""
        first = self._layers[0]
        capacity = max(1, self.capacity)
        while capacity < slots:
            capacity *= 2
        heads, head_dim = self._shape
        layer = 2 * capacity * heads * max(room, self.room) * head_dim * first.element_size()
        return (len(self._layers) + 1) * layer

    @property
    def bytes(self) -> int:
        return sum(layer.numel() * layer.element_size() for layer in self._layers)


class KVCache(_SlotCache):
    """Keys and values of the decoder's own tokens, a slot for each lane; none gets longer than
    `longest`.

    `lengths[slot]` tokens of a slot are valid. Writing does not lengthen a slot: `advance`
    does, once a whole step has gone well, so that a step can be repeated after an error.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        longest: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._longest = longest
        super().__init__(layers, heads, self._room_for(1), head_dim, device, dtype)

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """As Slots.bytes_for."""
        return self._bytes_for(slots, self._room_for(tokens))

    def reserve(self, tokens: int) -> None:
        """Make room for slots of so many tokens."""
        if tokens > self.room:
            self._grow(slots=self.capacity, room=self._room_for(tokens))

    def _room_for(self, tokens: int) -> int:
        room = _TARGET_STEP
        while room < tokens:
            room *= 2
        return min(room, self._longest)

    def write(
        self, layer: int, slots: slice, at: int | tuple[Tensor, Tensor], keys_values: Tensor
    ) -> None:
        """Store keys_values [rows, tokens, 2, heads, head_dim] of the rows `slots`.

        at: the first position when all rows agree, which makes it one plain copy; else the slots
        [rows, 1] and where each token belongs [rows, tokens].
        """
        tokens = keys_values.shape[1]
        if isinstance(at, int):
            target = self._layers[layer][:, slots, :, at : at + tokens]
            target.copy_(keys_values.permute(2, 0, 3, 1, 4))
            return
        self._layers[layer].permute(1, 3, 0, 2, 4).index_put_(at, keys_values)

    def read(self, layer: int, slots: slice, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the rows `slots`, each a view [rows, heads, length, head_dim]."""
        view = self._layers[layer][:, slots, :, :length]
        return view[0], view[1]

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in range(slots.start, slots.stop):
            self.lengths[slot] += tokens

    def truncate(self, slot: int, length: int) -> None:
        """Forget all but the first `length` tokens of a slot."""
        if not 0 <= length <= self.lengths[slot]:
            raise IndexError(f"slot {slot} holds {self.lengths[slot]} tokens, not {length}")
        self.lengths[slot] = length


class CrossCache(_SlotCache):
    """Memories of short sources side by side, so that one product serves all rows of a step. The
    lanes of one generation share a slot.

    Only for text, and layers that go operation by operation: 25 positions copied once cost less
    than a loop over rows at every step.
    """

    def __init__(
        self, layers: int, heads: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(layers, heads, _SOURCE_STEP, head_dim, device, dtype)

    def bytes_for(self, slots: int, source: int) -> int:
        """As Sources.bytes_for."""
        return self._bytes_for(slots, _rounded(source))

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Put a memory into a slot; makes room when its source is the longest so far."""
        if encoded.length > self.room:
            self._grow(slots=self.capacity, room=_rounded(encoded.length))
        for layer, keys, values in zip(self._layers, encoded.keys, encoded.values, strict=True):
            layer[0, slot, :, : encoded.length] = keys
            layer[1, slot, :, : encoded.length] = values
        self.lengths[slot] = encoded.length

    def read(self, layer: int, slots: slice, length: int) -> tuple[Tensor, Tensor]:
        """As KVCache.read, over source positions."""
        view = self._layers[layer][:, slots, :, :length]
        return view[0], view[1]


class NullCrossCache:
    """Memories are read where they lie; only their number is kept."""

    bytes = 0

    def __init__(self) -> None:
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def alloc(self) -> int:
        self._count += 1
        return self._count - 1

    def bytes_for(self, slots: int, source: int) -> int:
        """Nothing is kept."""
        return 0

    def store(self, slot: int, encoded: EncodedSource) -> None:
        """Nothing to store."""

    def reorder(self, sources: Sequence[int]) -> None:
        self._count = len(sources)

    def erase(self, slot: int) -> None:
        """Nothing is stored."""


def _rounded(source: int) -> int:
    return -(-source // _SOURCE_STEP) * _SOURCE_STEP
