"""The decoder cache of a transformers module: transformers' own cache objects in slots."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ModuleKVCache", "ModuleSlot"]


@dataclass
class ModuleSlot:
    """One sequence.

    Attributes:
        ids: all tokens the module has read.
        length: how many of them are valid.
        past: transformers' cache of `ids`; None if they have to be read again.
    """

    ids: list[int] = field(default_factory=list)
    length: int = 0
    past: Any = None

    def rewind(self) -> None:
        """Discard tokens beyond `length`; the whole cache if it cannot be cropped."""
        extra = len(self.ids) - self.length
        del self.ids[self.length :]
        if extra and self.past is not None:
            try:
                self.past.crop(-extra)
            except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
                self.past = None


class ModuleKVCache:
    """A DecoderCache of one transformers cache per sequence.

    Args:
        config: the decoder's.
        itemsize: bytes of one number of the cache.
    """

    def __init__(self, config: Any, itemsize: int) -> None:
        self.slots: list[ModuleSlot] = []
        self._layers = max(1, int(getattr(config, "num_hidden_layers", 0) or 0))
        heads = int(getattr(config, "num_attention_heads", 0) or 1)
        head_dim = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
        head_dim = int(head_dim or int(getattr(config, "hidden_size", 0) or 0) // heads)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        # Keys and values of all layers, of one token and of one source position.
        self._token_bytes = 2 * self._layers * kv_heads * head_dim * itemsize
        self._source_bytes = 2 * self._layers * heads * head_dim * itemsize

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def lengths(self) -> list[int]:
        return [slot.length for slot in self.slots]

    def alloc(self) -> int:
        self.slots.append(ModuleSlot())
        return len(self.slots) - 1

    def bytes_for(self, slots: int, tokens: int, source: int) -> int:
        """As DecoderCache.bytes_for. While a cache grows, one of its layers exists twice."""
        slot_bytes = tokens * self._token_bytes + source * self._source_bytes
        return slots * slot_bytes + -(-tokens * self._token_bytes // self._layers)

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in self.slots[slots]:
            slot.length += tokens

    def truncate(self, slot: int, length: int) -> None:
        self.slots[slot].length = length

    def reorder(self, sources: Sequence[int]) -> None:
        for slot in set(range(len(self.slots))).difference(sources):
            self.slots[slot].past = None  # frees memory before others are copied
        taken: set[int] = set()
        reordered = []
        for source in sources:
            original = self.slots[source]
            reordered.append(copy.deepcopy(original) if source in taken else original)
            taken.add(source)
        self.slots = reordered

    def erase(self, slot: int) -> None:
        """Does nothing: slots share no tensors, so NaN cannot spread."""

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
