"""Encoded sources: the encoder's result as the decoder's cross-attention reads it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """The cross-attention keys and values of every decoder layer, computed once per source.

    Shared, never copied, by any number of requests: temperature fallbacks, beams, re-decodes.

    Attributes:
        keys, values: one tensor [heads, source length, head_dim] per layer.
        owner: identity of the model that computed them; no other model can use them.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    owner: object

    @cached_property
    def addresses(self) -> bytes:
        """Addresses of keys and values of each layer, int64 [layers, 2] as bytes; CPU only."""
        both = chain.from_iterable(zip(self.keys, self.values, strict=True))
        return array("q", [part.data_ptr() for part in both]).tobytes()

    @cached_property
    def length(self) -> int:
        """Number of source positions."""
        return self.keys[0].shape[1]

    @property
    def device(self) -> torch.device:
        return self.keys[0].device

    @property
    def bytes(self) -> int:
        """Memory that the tensors take."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))

    def to(self, device: torch.device, dtype: torch.dtype) -> EncodedSource:
        """This source on a device and in a dtype; itself if it is there already."""
        there = self.device.type == device.type and device.index in (None, self.device.index)
        if there and self.keys[0].dtype == dtype:
            return self
        keys = tuple(t.to(device, dtype) for t in self.keys)
        return EncodedSource(keys, tuple(t.to(device, dtype) for t in self.values), self.owner)


@dataclass(frozen=True)
class SourceGroups:
    """Which sequences of a pass share a source: those of one request, which are neighbors.

    Attributes:
        first_slot: slot of the first source in the cross cache; the others follow.
        sequence_counts: number of sequences on each source.
    """

    first_slot: int
    sequence_counts: tuple[int, ...]
