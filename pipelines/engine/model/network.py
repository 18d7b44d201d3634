"""A whole network in memory: sources → memories, and one decoder pass over any set of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.model.cache import CrossCache, SlotCache
from pipelines.engine.model.checkpoint import open_weights
from pipelines.engine.model.decoder import Decoder, Step
from pipelines.engine.model.device import Plan
from pipelines.engine.model.encoder import Encoder
from pipelines.engine.model.families import architecture_of, read_config
from pipelines.engine.model.memory import Memory, Sharing
from pipelines.engine.model.naming import names_of
from pipelines.engine.model.pages import give_back_freed_memory
from pipelines.engine.model.readout import Readout
from pipelines.engine.model.workers import Workers
from pipelines.errors import OptionError

__all__ = ["Network"]

# When rows stand at different positions the cache is read up to a multiple of this, behind a
# mask: few shapes where libraries build a kernel per shape. For float32 on a CPU none does, and
# the padding costs its full time.
_LENGTH_STEP, _CPU_LENGTH_STEP = 64, 8
_SOURCE_STEP = 16

# How much text is read at once on a CPU: few enough tokens that what the layers hand on stays in
# its caches.
_PART_TOKENS = 512


class Network:
    """The weights of one model folder, laid out for one plan. Not thread-safe.

    workers: to encode several recordings side by side. shortlist: the ids that can be generated,
    each once, or None for all. Raises CheckpointError when the folder is no usable model,
    OptionError for a shortlist of ids that it lacks, or without an end of text.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        workers: Workers | None = None,
        shortlist: tuple[int, ...] | None = None,
    ) -> None:
        self.folder, self.follows_attention = folder, True
        self.architecture = architecture_of(read_config(folder), str(folder))
        self.shortlist = shortlist
        self._check_shortlist()
        plan = plan if self.architecture.source == "audio" else plan.for_text()
        plan = plan if self.architecture.decoder.relative is None else plan.with_range()
        self.plan = plan
        self._workers = workers or Workers()
        weights = open_weights(folder).named(names_of(self.architecture.family))
        with torch.inference_mode():
            # First what takes the most memory to lay out, the decoder's table of tokens.
            self._decoder = Decoder(weights, self.architecture, plan, self.shortlist)
            give_back_freed_memory()
            self._encoder = Encoder(weights, self.architecture, plan)
            give_back_freed_memory()
        exact = plan.decoder.activations == torch.float32 and not plan.on_gpu
        self._length_step = _CPU_LENGTH_STEP if exact else _LENGTH_STEP
        self._owner = object()

    def _check_shortlist(self) -> None:
        if self.shortlist is None:
            return
        size = self.architecture.vocab_size
        wrong = next((index for index in self.shortlist if not 0 <= index < size), None)
        if wrong is not None:
            raise OptionError(
                f"the shortlist for {self.folder.name} names the id {wrong} of {size}"
            )
        if not set(self.shortlist).intersection(self.architecture.eos_ids):
            raise OptionError(f"the shortlist for {self.folder.name} has no end")

    @property
    def memory_dtype(self) -> torch.dtype:
        return self._decoder.memory_dtype

    def owns(self, memory: Memory) -> bool:
        return memory.owner is self._owner

    def hears_as(self, other: Network) -> bool:
        """Whether both encoders have one shape, and take the same sources."""
        mine, theirs = self.architecture, other.architecture
        return (mine.encoder, mine.source, mine.num_mel_bins, mine.source_vocab_size) == (
            theirs.encoder,
            theirs.source,
            theirs.num_mel_bins,
            theirs.source_vocab_size,
        )

    def adopt(self, other: Network) -> None:
        """Accept the memories of `other`, the same weights under another plan."""
        self._owner = other._owner

    def caches(self) -> tuple[SlotCache, CrossCache]:
        """Empty caches for a batch of generations."""
        stack, place = self.architecture.decoder, (self.plan.device, self._decoder.dtype)
        return (
            SlotCache(stack.layers, stack.heads, stack.max_positions, stack.head_dim, *place),
            CrossCache(stack.layers, stack.heads, stack.head_dim, *place),
        )

    def encode(self, sources: Sequence[Any]) -> list[Memory]:
        """Audio: log-mel tensors [mels, frames] of one even length; text: token ids of any
        lengths."""
        return [own for (own,) in self._encode(sources, [self])]

    def encode_sharing(self, sources: Sequence[Any], other: Network) -> list[tuple[Memory, Memory]]:
        """Encode once for two models with the same encoder: (own memory, the other's) each."""
        return [(own, others) for own, others in self._encode(sources, [self, other])]

    def _encode(
        self, sources: Sequence[Any], readers: Sequence[Network]
    ) -> list[tuple[Memory, ...]]:
        """For each source the memory of every reader."""
        parts = self._parts(sources)
        jobs = [
            partial(self._encode_together, [sources[at] for at in part], readers) for part in parts
        ]
        if self.architecture.source == "audio":
            done = self._workers.run(jobs)
        else:
            done = [job() for job in jobs]
        places = [at for part in parts for at in part]
        found = dict(zip(places, chain.from_iterable(done), strict=True))
        return [found[at] for at in range(len(sources))]

    def _parts(self, sources: Sequence[Any]) -> list[list[int]]:
        """Places of the sources that are encoded together."""
        if self.plan.on_gpu:
            return [list(range(len(sources)))]
        if self.architecture.source == "audio":
            # On a CPU one window fills the caches: eight together took longer than one by one, and
            # each of four at a time on a thread of its own an eighth less than that.
            return [[at] for at in range(len(sources))]
        return _alike([len(source) for source in sources], _PART_TOKENS)

    def _encode_together(
        self, sources: Sequence[Any], readers: Sequence[Network]
    ) -> list[tuple[Memory, ...]]:
        if self.architecture.source == "audio":
            hidden = self._encoder.hear(torch.stack(list(sources)))
            lengths = [hidden.shape[1]] * len(hidden)
        else:
            hidden, lengths = self._hidden(sources)
        kept = [
            reader._remember(hidden.to(reader.plan.device, reader._encoder.dtype), lengths)
            for reader in readers
        ]
        return list(zip(*kept, strict=True))

    def _hidden(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
        lengths = [len(source) for source in sources]
        ids = torch.full((len(sources), max(lengths)), self.architecture.pad_id)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        mask = _padding_mask(lengths, max(lengths), self.plan.device, self._encoder.dtype)
        return self._encoder.read(ids.to(self.plan.device), mask), lengths

    def _remember(self, hidden: Tensor, lengths: list[int]) -> list[Memory]:
        layers = self._decoder.remember(hidden)
        if len(lengths) > 1:
            # A memory of its own each, or the longest-lived one would keep its whole batch alive.
            cut = [
                [layer[:, row, :, :length].clone() for layer in layers]
                for row, length in enumerate(lengths)
            ]
        else:
            cut = [[layer[:, 0] for layer in layers]]
        return [
            Memory(tuple(kv[0] for kv in each), tuple(kv[1] for kv in each), self._owner)
            for each in cut
        ]

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        memories: Sequence[Memory],
        cache: SlotCache,
        cross: CrossCache,
        readout: Readout | None = None,
        sharing: Sharing | None = None,
    ) -> Tensor:
        """One pass over the rows `slots`, as many new tokens for each → hidden states.

        ids: [rows][tokens]. memories: one a row. sharing: which rows have a source in common;
        none by default. The cache is written, not advanced.
        Returns [rows, tokens, d_model]. Rows may stand at different positions.
        """
        sharing = sharing or Sharing(slots.start, (1,) * len(ids))
        step = self._step(len(ids[0]), slots, memories, cache, cross, readout, sharing)
        tokens = torch.tensor(ids, device=self.plan.device)
        return self._decoder.forward(tokens, step, cache, cross)

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, d_model] → float32 [n, vocab]."""
        return self._decoder.logits(hidden)

    def _step(
        self,
        tokens: int,
        slots: slice,
        memories: Sequence[Memory],
        cache: SlotCache,
        cross: CrossCache,
        readout: Readout | None,
        sharing: Sharing,
    ) -> Step:
        device, dtype = self.plan.device, self._decoder.dtype
        starts = cache.lengths[slots]
        uniform = all(start == starts[0] for start in starts)
        at: int | Tensor = starts[0]
        length, mask = max(starts) + tokens, None
        if not uniform or tokens > 1:
            first = torch.tensor(starts, device=device)[:, None]
            positions = first + torch.arange(tokens, device=device)
            if not uniform:
                at, rounded = positions, -(-length // self._length_step) * self._length_step
                length = min(rounded, self.architecture.max_target_positions)
            hidden = torch.arange(length, device=device) > positions[:, :, None]
            mask = torch.zeros(hidden.shape, device=device, dtype=dtype)
            mask = mask.masked_fill_(hidden, -torch.inf)[:, None]
        cache.reserve(length)
        if self.architecture.source == "audio":
            near: tuple[Memory, ...] | None = tuple(memories)
            source_length, source_mask = 0, None
        else:
            near, lengths = None, cross.lengths[_sources(sharing)]
            source_length = max(lengths)
            if min(lengths) != source_length:
                source_length = min(-(-source_length // _SOURCE_STEP) * _SOURCE_STEP, cross.room)
            source_mask = _padding_mask(lengths, source_length, device, dtype)
        return Step(
            (len(starts), tokens),
            slots,
            at,
            length,
            mask,
            near,
            source_length,
            source_mask,
            readout,
            _sources(sharing),
            _runs(sharing),
        )


def _alike(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Places of sources of like length, as many as have `most` tokens together with their
    padding, but one at least."""
    parts: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not parts or (len(parts[-1]) + 1) * lengths[place] > most:
            parts.append([])
        parts[-1].append(place)
    return parts


def _sources(sharing: Sharing) -> slice:
    return slice(sharing.first, sharing.first + len(sharing.widths))


def _runs(sharing: Sharing) -> tuple[tuple[int, int], ...] | None:
    """Neighbouring generations of equal width: (how many, their width); None for one lane each."""
    if all(width == 1 for width in sharing.widths):
        return None
    return tuple((len(list(same)), width) for width, same in groupby(sharing.widths))


def _padding_mask(
    lengths: Sequence[int], longest: int, device: torch.device, dtype: torch.dtype
) -> Tensor | None:
    """[rows, 1, 1, longest], −∞ beyond each length; None when nothing is padded."""
    if min(lengths) == longest:
        return None
    beyond = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
    mask = torch.zeros(beyond.shape, dtype=dtype).masked_fill_(beyond, -torch.inf)
    return mask[:, None, None].to(device)
