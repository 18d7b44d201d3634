"""A whole network in memory: sources → memories, and one decoder pass over any set of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.kernels.malloc import trim_heap
from pipelines.engine.model.decoder import Decoder, Place
from pipelines.engine.model.encoder import Encoder
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import ForwardBatch, padding_mask
from pipelines.engine.state.kv_cache import CrossCache, KVCache, NullCrossCache
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.engine.weights.hf_config import architecture_of, read_config
from pipelines.engine.weights.weight_names import checkpoint_names
from pipelines.errors import OptionError

__all__ = ["NativeBackend"]

# How much text is read at once on a CPU: few enough tokens that what the layers hand on stays in
# its caches.
_ENCODER_PART_TOKENS = 512


class NativeBackend:
    """The weights of one model folder, laid out for one plan. Not thread-safe.

    workers: to encode several recordings side by side. shortlist: the ids that can be generated,
    each once, or None for all. Raises CheckpointError when the folder is no usable model,
    OptionError for a shortlist of ids that it lacks, or without an end of text.
    """

    def __init__(
        self,
        folder: Path,
        plan: ComputePlan,
        compute_threads: ComputeThreads | None = None,
        shortlist: tuple[int, ...] | None = None,
    ) -> None:
        self.folder, self.reports_attention = folder, True
        self.architecture = architecture_of(read_config(folder), str(folder))
        self.shortlist = shortlist
        self._check_shortlist()
        plan = plan if self.architecture.source == "audio" else plan.for_text()
        plan = plan if self.architecture.decoder.relative is None else plan.with_range()
        self.plan = plan
        self._compute_threads = compute_threads or ComputeThreads()
        weights = open_weights(folder).named(checkpoint_names(self.architecture.family))
        with torch.inference_mode():
            # First what takes the most memory to lay out, the decoder's table of tokens.
            self._decoder = Decoder(weights, self.architecture, plan, self.shortlist)
            trim_heap()
            self._encoder = Encoder(weights, self.architecture, plan)
            trim_heap()
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
    def source_dtype(self) -> torch.dtype:
        return self._decoder.source_dtype

    @property
    def kernels(self) -> str:
        """Whose kernels the decoder's layers run on."""
        return self._decoder.kernels

    def owns(self, encoded: EncodedSource) -> bool:
        return encoded.owner is self._owner

    def shares_encoder_with(self, other: NativeBackend) -> bool:
        """Whether both encoders have one shape, and take the same sources."""
        mine, theirs = self.architecture, other.architecture
        return (mine.encoder, mine.source, mine.num_mel_bins, mine.source_vocab_size) == (
            theirs.encoder,
            theirs.source,
            theirs.num_mel_bins,
            theirs.source_vocab_size,
        )

    def adopt(self, other: NativeBackend) -> None:
        """Accept the memories of `other`, the same weights under another plan."""
        self._owner = other._owner

    def caches(self) -> tuple[KVCache, CrossCache | NullCrossCache]:
        """Empty caches for a batch of generations."""
        return self._decoder.caches()

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Audio: log-mel tensors [mels, frames] of one even length; text: token ids of any
        lengths."""
        return [own for (own,) in self._encode(sources, [self])]

    def encode_sharing(
        self, sources: Sequence[Any], other: NativeBackend
    ) -> list[tuple[EncodedSource, EncodedSource]]:
        """Encode once for two models with the same encoder: (own memory, the other's) each."""
        return [(own, others) for own, others in self._encode(sources, [self, other])]

    def _encode(
        self, sources: Sequence[Any], readers: Sequence[NativeBackend]
    ) -> list[tuple[EncodedSource, ...]]:
        """For each source the memory of every reader."""
        parts = self._parts(sources)
        jobs = [
            partial(self._encode_together, [sources[at] for at in part], readers) for part in parts
        ]
        if self.architecture.source == "audio":
            done = self._compute_threads.run(jobs)
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
        return _alike([len(source) for source in sources], _ENCODER_PART_TOKENS)

    def _encode_together(
        self, sources: Sequence[Any], readers: Sequence[NativeBackend]
    ) -> list[tuple[EncodedSource, ...]]:
        if self.architecture.source == "audio":
            hidden = self._encoder.encode_audio(torch.stack(list(sources)))
            places = [(row, 0, hidden.shape[1]) for row in range(len(hidden))]
        else:
            hidden, places = self._hidden(sources)
        kept = [
            reader._project_cross_kv(hidden.to(reader.plan.device, reader._encoder.dtype), places)
            for reader in readers
        ]
        return list(zip(*kept, strict=True))

    def _hidden(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, list[Place]]:
        """States [rows, length, d_model] of texts, and where each lies."""
        lengths = [len(source) for source in sources]
        if self._encoder.can_encode_flat:
            ends = list(accumulate(lengths))
            places = [(0, end - own, end) for own, end in zip(lengths, ends, strict=True)]
            return self._encoder.encode_text_flat(sources)[None], places
        ids = torch.full((len(sources), max(lengths)), self.architecture.pad_id)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        mask = padding_mask(lengths, max(lengths), self.plan.device, self._encoder.dtype)
        places = [(row, 0, own) for row, own in enumerate(lengths)]
        return self._encoder.encode_text(ids.to(self.plan.device), mask), places

    def _project_cross_kv(self, hidden: Tensor, places: Sequence[Place]) -> list[EncodedSource]:
        found = []
        for layers in self._decoder.project_cross_kv(hidden, places):
            keys, values = zip(*(layer.unbind() for layer in layers), strict=True)
            found.append(EncodedSource(keys, values, self._owner))
        return found

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        cache: KVCache,
        cross: CrossCache | NullCrossCache,
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """One pass over the rows `slots`, as many new tokens for each → hidden states.

        ids: [rows][tokens]. memories: one a row. sharing: which rows have a source in common;
        none by default. The cache is written, not advanced.
        Returns [rows, tokens, d_model]. Rows may stand at different positions.
        """
        batch = ForwardBatch(
            (len(ids), len(ids[0])),
            slots,
            cache.lengths[slots],
            tuple(encoded_sources),
            source_groups or SourceGroups(slots.start, (1,) * len(ids)),
            capture,
        )
        cache.reserve(batch.length)
        side_by_side = None if isinstance(cross, NullCrossCache) else cross
        return self._decoder.forward(ids, batch, cache, side_by_side)

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, d_model] → float32 [n, vocab]."""
        return self._decoder.head.logits(hidden)

    def argmax(
        self, hidden: Tensor, ruled_out: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """As Backend.likeliest."""
        return self._decoder.head.argmax(hidden, ruled_out, logprobs)


def _alike(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Places of sources of like length, as many as have `most` tokens together with their
    padding, but one at least."""
    parts: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not parts or (len(parts[-1]) + 1) * lengths[place] > most:
            parts.append([])
        parts[-1].append(place)
    return parts
