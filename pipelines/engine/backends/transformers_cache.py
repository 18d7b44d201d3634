"""The decoder cache of a transformers module: transformers' own cache objects in slots.

Sequences at the same position share one cache object, a row each, so that one pass serves them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class CacheRow:
    """The part of a transformers cache of so many rows that is one sequence's."""

    cache: Any
    row: int = 0
    rows: int = 1


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
    past: CacheRow | None = None


class ModuleKVCache:
    """A DecoderCache of rows of transformers' caches, whose numbers take `itemsize` bytes."""

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
        """As DecoderCache.bytes_for. While rows are joined anew, they exist twice; while a single
        one grows, one of its layers does."""
        held = slots * (tokens * self._token_bytes + source * self._source_bytes)
        return held + (held if slots > 1 else -(-tokens * self._token_bytes // self._layers))

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in self.slots[slots]:
            slot.length += tokens

    def truncate(self, slot: int, length: int) -> None:
        self.slots[slot].length = length

    def rewind(self, slot: ModuleSlot, source_length: int) -> None:
        """Discard tokens beyond the slot's `length`; its cache too if that cannot be cropped."""
        extra = len(slot.ids) - slot.length
        del slot.ids[slot.length :]
        if not extra or slot.past is None:
            return
        cache = self.take([slot], source_length)
        try:
            cache.crop(-extra)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return
        slot.past = CacheRow(cache)

    def take(self, slots: Sequence[ModuleSlot], source_length: int) -> Any:
        """The cache of these slots, in their order, for a pass that writes to it.

        The slots are of equal length, each with a past; `source_length` is that of the longest of
        their sources. The slots lose the cache: if the pass fails, it is half written.
        """
        rows = [slot.past for slot in slots if slot.past is not None]
        for slot in slots:
            slot.past = None
        cache = rows[0].cache
        others = any(slot.past is not None and slot.past.cache is cache for slot in self.slots)
        whole = [row.row for row in rows] == [*range(rows[0].rows)]
        if whole and not others and all(row.cache is cache for row in rows):
            return cache
        return _joined(rows, source_length)

    def reorder(self, sources: Sequence[int]) -> None:
        for slot in set(range(len(self.slots))).difference(sources):
            self.slots[slot].past = None  # frees memory before others are copied
        taken: set[int] = set()
        reordered = []
        for source in sources:
            original = self.slots[source]
            reordered.append(_copied(original) if source in taken else original)
            taken.add(source)
        self.slots = reordered

    def erase(self, slot: int) -> None:
        """Forget a slot's rows, which may hold NaN; rows of one batch do not mix."""
        self.slots[slot].past = None

    @property
    def bytes(self) -> int:
        caches = {id(slot.past.cache): slot.past.cache for slot in self.slots if slot.past}
        tensors = [
            getattr(layer, name, None)
            for cache in caches.values()
            for part in _parts(cache)
            for layer in getattr(part, "layers", None) or ()
            for name in ("keys", "values")
        ]
        return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)


def _copied(slot: ModuleSlot) -> ModuleSlot:
    """A copy of a slot. A row is shared until one of its users writes to it."""
    past = slot.past
    if past is not None and not can_join(past.cache):
        past = copy.deepcopy(past)
    return ModuleSlot([*slot.ids], slot.length, past)


def can_join(cache: Any) -> bool:
    """Whether rows of several such caches can be put into one: it keeps all positions."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

    if not isinstance(cache, DynamicCache | EncoderDecoderCache):
        return False
    return all(type(layer) is DynamicLayer for part in _parts(cache) for layer in part.layers)


def _parts(cache: Any) -> list[Any]:
    """The caches of self-attention and cross-attention; the cache itself if it is one of them."""
    own = getattr(cache, "self_attention_cache", None)
    return [cache] if own is None else [own, cache.cross_attention_cache]


def _joined(rows: Sequence[CacheRow], source_length: int) -> Any:
    """A new cache with these rows; a copy of the cache for a single row of an unknown kind."""
    if not can_join(rows[0].cache):
        return copy.deepcopy(rows[0].cache)
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    parts = [_parts(row.cache) for row in rows]
    joined = []
    for index in range(len(parts[0])):
        part = DynamicCache()
        length = source_length if index else None  # cross-attention is padded, and masked
        for layers in zip(*(each[index].layers for each in parts), strict=True):
            layer = copy.copy(layers[0])
            for name in ("keys", "values"):
                tensors = [getattr(each, name) for each in layers]
                setattr(layer, name, _rows_of(tensors, rows, length))
            part.layers.append(layer)
        joined.append(part)
    return joined[0] if len(joined) == 1 else EncoderDecoderCache(*joined)


def _rows_of(tensors: Sequence[Any], rows: Sequence[CacheRow], length: int | None) -> Tensor | None:
    """One row of each tensor [rows, heads, length, width]; None for a layer without content."""
    if tensors[0] is None:
        return None
    picked = [tensor[row.row : row.row + 1] for tensor, row in zip(tensors, rows, strict=True)]
    if length is not None:
        cut = [each[:, :, :length] for each in picked]
        picked = [functional.pad(each, (0, 0, 0, length - each.shape[2])) for each in cut]
    return torch.cat(picked)
