"""What a transformers module has read, in transformers' own cache objects."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModuleKVCache", "ModuleSlot"]


@dataclass
class ModuleSlot:
    """ids: all that was read, of which `length` count. past: transformers' cache of them."""

    ids: list[int] = field(default_factory=list)
    length: int = 0
    past: Any = None

    def rewind(self) -> None:
        """Forget what was read beyond `length`; the cache as a whole where it cannot be cut."""
        extra = len(self.ids) - self.length
        del self.ids[self.length :]
        if extra and self.past is not None:
            try:
                self.past.crop(-extra)
            except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
                self.past = None


class ModuleKVCache:
    """What each lane has read, in caches of one row each.

    config: the decoder's. width: bytes of one of its numbers.
    """

    def __init__(self, config: Any, width: int) -> None:
        self.slots: list[ModuleSlot] = []
        self._layers = max(1, int(getattr(config, "num_hidden_layers", 0) or 0))
        heads = int(getattr(config, "num_attention_heads", 0) or 1)
        size = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
        size = int(size or int(getattr(config, "hidden_size", 0) or 0) // heads)
        own = int(getattr(config, "num_key_value_heads", None) or heads)
        # Keys and values, of a token read and of a source position.
        self._token_bytes = 2 * self._layers * own * size * width
        self._source_bytes = 2 * self._layers * heads * size * width

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def lengths(self) -> list[int]:
        return [slot.length for slot in self.slots]

    def alloc(self) -> int:
        self.slots.append(ModuleSlot())
        return len(self.slots) - 1

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """As Slots.bytes_for. A cache grows by writing a longer copy of one layer's."""
        lane = tokens * self._token_bytes + source * self._source_bytes
        return slots * lane + -(-tokens * self._token_bytes // self._layers)

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in self.slots[slots]:
            slot.length += tokens

    def truncate(self, slot: int, length: int) -> None:
        self.slots[slot].length = length

    def reorder(self, sources: Sequence[int]) -> None:
        for place in set(range(len(self.slots))).difference(sources):
            self.slots[place].past = None  # before others are copied
        taken: set[int] = set()
        moved = []
        for source in sources:
            slot = self.slots[source]
            moved.append(copy.deepcopy(slot) if source in taken else slot)
            taken.add(source)
        self.slots = moved

    def erase(self, slot: int) -> None:
        """Slots share no tensors."""

    @property
    def bytes(self) -> int:
        parts = [
            getattr(past, name, None)
            for slot in self.slots
            if (past := slot.past) is not None
            for name in ("layers", "self_attention_cache", "cross_attention_cache")
        ]
        layers = [layer for part in parts for layer in getattr(part, "layers", part) or ()]
        tensors = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)
