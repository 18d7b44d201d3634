"""Memory: an encoded source, as the decoder reads it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

__all__ = ["EncodedSource", "SourceGroups"]


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """The cross-attention keys and values of every decoder layer, computed once per source.

    Shared, never copied, by any number of requests: temperature fallbacks, beams, re-decodes.
    keys, values: one [heads, source length, head_dim] a layer.
    owner: identity of the model that made it; no other model can read it.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    owner: object

    @cached_property
    def addresses(self) -> bytes:
        """Where keys and values of each layer lie, int64 [layers, 2]; on a CPU."""
        both = chain.from_iterable(zip(self.keys, self.values, strict=True))
        return array("q", [part.data_ptr() for part in both]).tobytes()

    @cached_property
    def length(self) -> int:
        return self.keys[0].shape[1]

    @property
    def device(self) -> torch.device:
        return self.keys[0].device

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))

    def to(self, device: torch.device, dtype: torch.dtype) -> EncodedSource:
        """The same memory elsewhere; itself when it is there already."""
        there = self.device.type == device.type and device.index in (None, self.device.index)
        if there and self.keys[0].dtype == dtype:
            return self
        keys = tuple(t.to(device, dtype) for t in self.keys)
        return EncodedSource(keys, tuple(t.to(device, dtype) for t in self.values), self.owner)


@dataclass(frozen=True)
class SourceGroups:
    """How the lanes of a pass share sources: generation i, whose source lies in slot `first` + i
    of the cross cache, has widths[i] neighbouring lanes."""

    first: int
    widths: tuple[int, ...]
