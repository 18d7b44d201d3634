"""The native model as a backend: encodes sources and runs decoder passes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.base import Caches
from pipelines.engine.model.decoder import Decoder
from pipelines.engine.model.encoder import Encoder
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.sources import SourceSpan, source_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import AttentionCapture, ForwardBatch
from pipelines.engine.state.kv_cache import CrossCache, KVCache, NullCrossCache
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import OptionError
from pipelines.families import FAMILIES, architecture_of, read_config
from pipelines.families.architecture import RelativePositions
from pipelines.malloc import trim_heap

# Threads up to which sound is encoded ahead by one of them. Measured on two.
_MOST_THREADS_AHEAD = 4


class NativeBackend:
    """The weights of one model folder, laid out for one plan. Not thread-safe, but for
    `encode_ahead`, whose work shares nothing with that of `decode`.

    Args:
        folder: the model folder.
        plan: device and precision; adapted to the architecture.
        compute_threads: the CPU threads. They divide the encoding of sound.
        shortlist: the only ids that can be generated, without duplicates; None for all.

    Raises:
        CheckpointError: the folder is not a usable model.
        OptionError: the shortlist names ids outside the vocabulary, or no end-of-text id.
    """

    def __init__(
        self,
        folder: Path,
        plan: ComputePlan,
        compute_threads: ComputeThreads,
        shortlist: tuple[int, ...] | None = None,
    ) -> None:
        self.folder, self.reports_attention = folder, True
        self.architecture = architecture_of(read_config(folder), str(folder))
        self.shortlist = shortlist
        self._check_shortlist()
        self.source = source_of(self.architecture)
        is_sound, head_dim = self.source.is_sound, self.architecture.encoder.head_dim
        plan = plan.for_audio_source(head_dim) if is_sound else plan.for_text_source()
        if isinstance(self.architecture.decoder.attention_positions, RelativePositions):
            plan = plan.without_float16_activations()
        self.plan = plan
        self._one_by_one = is_sound and not plan.on_gpu
        self._compute_threads = compute_threads
        tensor_name = FAMILIES[self.architecture.family].tensor_name
        weights = open_weights(folder).named(tensor_name)
        with torch.inference_mode():
            # The decoder first: laying out its token embedding takes the most memory.
            self._decoder = Decoder(weights, self.architecture, self.source, plan, self.shortlist)
            trim_heap()
            self._encoder = Encoder(weights, self.architecture, self.source, plan)
            trim_heap()
        self._owner = object()

    def _check_shortlist(self) -> None:
        if self.shortlist is None:
            return
        size = self.architecture.vocab_size
        wrong = next((index for index in self.shortlist if not 0 <= index < size), None)
        if wrong is not None:
            raise OptionError(
                f"the shortlist for {self.folder.name} contains the id {wrong}, "
                f"but the vocabulary has {size} ids"
            )
        if not set(self.shortlist).intersection(self.architecture.eos_ids):
            raise OptionError(
                f"the shortlist for {self.folder.name} must include an end-of-text id"
            )

    @property
    def source_dtype(self) -> torch.dtype:
        """Of encoded sources."""
        return self._decoder.source_dtype

    @property
    def kernels(self) -> str:
        """The kernels that the decoder's layers run on, for the user."""
        return self._decoder.kernels

    def owns(self, encoded: EncodedSource) -> bool:
        """Whether a source was encoded by this model, or by one that it has adopted."""
        return encoded.owner is self._owner

    def shares_encoder_with(self, other: NativeBackend) -> bool:
        """Whether both encoders have the same shape and accept the same sources."""
        mine, theirs = self.architecture, other.architecture
        return (mine.encoder, mine.source, mine.num_mel_bins, mine.source_vocab_size) == (
            theirs.encoder,
            theirs.source,
            theirs.num_mel_bins,
            theirs.source_vocab_size,
        )

    def adopt(self, other: NativeBackend) -> None:
        """Accept the encoded sources of `other`, the same weights under another plan."""
        self._owner = other._owner

    @property
    def weight_bytes(self) -> None:
        """Not known: torch does not tell how large its packed layouts are."""

    def caches(self) -> Caches:
        """Empty caches for a batch of requests. Where sources are read in place, the second
        stores no tensors."""
        tokens, copied = self._decoder.caches()
        sources = NullCrossCache() if copied is None else copied
        return Caches(tokens, sources, lambda *args: self.decode(tokens, copied, *args))

    @property
    def sources_at_once(self) -> int | None:
        """Sound on a CPU: one source a thread. Others are encoded in larger batches."""
        return self._compute_threads.count if self._one_by_one else None

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Encode sources.

        Args:
            sources: audio: log-mel tensors [mels, frames] of even lengths, on a GPU all of one;
                waveform: tensors [samples] of any length; text: lists of token ids of any length.
        """
        return [own for (own,) in self._encode(sources, [self])]

    def encode_ahead(self, source: Any) -> Future[EncodedSource] | None:
        """Begin to encode a source on one thread, while others decode.

        Only beside compiled kernels, which leave a thread to it and whose results do not depend on
        what is computed at the same time.

        Returns:
            None where sources are not encoded ahead: with many threads, too, which would wait for
            the one.
        """
        threads = self._compute_threads
        few = 1 < threads.count <= _MOST_THREADS_AHEAD
        if not (few and self._one_by_one and self._decoder.is_compiled):
            return None
        return threads.start(lambda: self._encode_batch([source], [self], ComputeThreads())[0][0])

    def encode_sharing(
        self, sources: Sequence[Any], other: NativeBackend
    ) -> list[tuple[EncodedSource, EncodedSource]]:
        """Encode once for two models with the same encoder: this one and `other`."""
        return [(own, others) for own, others in self._encode(sources, [self, other])]

    def reuse_source(self, encoded: EncodedSource, layers: Sequence[int]) -> EncodedSource:
        """A source for this model that shares the tensors of some layers of another model's."""
        keys = tuple(encoded.keys[layer] for layer in layers)
        values = tuple(encoded.values[layer] for layer in layers)
        return EncodedSource(keys, values, self._owner)

    def _encode(
        self, sources: Sequence[Any], backends: Sequence[NativeBackend]
    ) -> list[tuple[EncodedSource, ...]]:
        """Encode sources in batches; one EncodedSource per source and backend."""
        self._compute_threads.use()
        on_gpu = self.plan.on_gpu
        batches = [[*range(len(sources))]] if on_gpu else self.source.batches(sources)
        jobs = [
            partial(self._encode_batch, [sources[i] for i in batch], backends) for batch in batches
        ]
        threads = self._compute_threads if self._one_by_one else ComputeThreads()
        # A window for each thread; threads share the work of the windows that are left.
        side_by_side = len(jobs) // threads.count * threads.count
        results = threads.run([partial(job, ComputeThreads()) for job in jobs[:side_by_side]])
        results += [job(threads) for job in jobs[side_by_side:]]
        order = chain.from_iterable(batches)
        encoded = dict(zip(order, chain.from_iterable(results), strict=True))
        return [encoded[i] for i in range(len(sources))]

    def _encode_batch(
        self, sources: Sequence[Any], backends: Sequence[NativeBackend], threads: ComputeThreads
    ) -> list[tuple[EncodedSource, ...]]:
        hidden, spans = self._encoder.encode(sources, threads)
        by_backend = [
            backend._project_cross_kv(
                hidden.to(backend.plan.device, backend._encoder.dtype), spans, threads
            )
            for backend in backends
        ]
        return list(zip(*by_backend, strict=True))

    def _project_cross_kv(
        self, hidden: Tensor, spans: Sequence[SourceSpan], threads: ComputeThreads
    ) -> list[EncodedSource]:
        encoded_sources = []
        for layers in self._decoder.project_cross_kv(hidden, spans, threads):
            keys, values = zip(*(layer.unbind() for layer in layers), strict=True)
            encoded_sources.append(EncodedSource(keys, values, self._owner))
        return encoded_sources

    def decode(
        self,
        cache: KVCache,
        cross: CrossCache | None,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """Run one pass over caches of this backend, as DecodePass."""
        self._compute_threads.use()
        batch = ForwardBatch(
            (len(ids), len(ids[0])),
            slots,
            cache.lengths[slots],
            tuple(encoded_sources),
            source_groups or SourceGroups(slots.start, (1,) * len(ids)),
            capture,
        )
        cache.reserve(batch.kv_length)
        return self._decoder.forward(ids, batch, cache, cross)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [n, d_model] → float32 [n, vocab]."""
        return self._decoder.lm_head.logits(hidden)

    def argmax(
        self, hidden: Tensor, suppressed: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        """The most likely tokens, as Backend.argmax."""
        return self._decoder.lm_head.argmax(hidden, suppressed, logprobs)
