"""Passes in few forms, each recorded once and played again: a GPU waits for Python no longer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pipelines.engine.kernels.loader import kernels_disabled
from pipelines.engine.state.encoded_source import SourceGroups
from pipelines.engine.state.forward_batch import (
    AttentionMetadata,
    ForwardBatch,
    padded_length,
    static_attention_metadata,
)
from pipelines.engine.state.kv_cache import CrossCache, KVCache

__all__ = ["CudaGraphRunner", "Recorder", "Work", "bucket", "recorders_for"]

# Longer passes read prompts: each comes once, and keeps a GPU busy by itself.
_MOST_TOKENS = 16

# So many recordings are kept for a cache; the one that was played longest ago goes.
_KEPT = 64

# A recording is believed when its states differ from computed ones by no more than so much of the
# largest of them: they come from the same kernels.
_TOLERANCE = 0.02


# Computes a result out of tensors that stay where they are, and of nothing else.
Work = Callable[[], Tensor]

# Does a piece of work, perhaps more than once, and returns what does it again.
Recorder = Callable[[Work], Work]


class _Decode(Protocol):
    def __call__(
        self,
        ids: Tensor,
        places: Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache,
    ) -> Tensor: ...


@dataclass(frozen=True)
class _GraphKey:
    """What passes have in common that one recording serves.

    sources: how many, each with `width` rows of `tokens` new tokens; there may be fewer, and what
        the rest computes counts for nothing. length, source_length: how much of the caches is
        read. masked: whether sources may be shorter.
    """

    sources: int
    width: int
    tokens: int
    length: int
    source_length: int
    masked: bool

    @property
    def rows(self) -> int:
        return self.sources * self.width


class _RecordedGraph:
    """One form, recorded. Its inputs lie in one tensor, which one copy fills."""

    def __init__(
        self,
        form: _GraphKey,
        decode: _Decode,
        caches: tuple[KVCache, CrossCache],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._form = form
        sizes = [form.rows * form.tokens, form.rows, form.sources]
        self._inputs = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        ids, starts, lengths = torch.split(self._inputs, sizes)
        ids = ids.view(form.rows, form.tokens)
        source_groups = SourceGroups(0, (form.width,) * form.sources)
        batch = ForwardBatch(
            (form.rows, form.tokens), slice(0, form.rows), (), (), source_groups, None
        )

        def work() -> Tensor:
            places = starts[:, None] + torch.arange(form.tokens, device=device)
            sources = (form.source_length, lengths if form.masked else None)
            metadata = static_attention_metadata(
                places, form.length, *sources, source_groups, dtype
            )
            return decode(ids, places, batch, metadata, *caches)

        self._work: Work = work

    def compute(
        self, ids: Sequence[Sequence[int]], starts: Sequence[int], lengths: Sequence[int]
    ) -> Tensor:
        """The states of a pass, by the recording if there is one."""
        form = self._form
        missing = form.rows - len(ids)
        given = chain(
            chain.from_iterable(ids), [0] * (missing * form.tokens), starts, [0] * missing,
            lengths, [form.source_length] * (form.sources - len(lengths)),
        )  # fmt: skip
        self._inputs.copy_(torch.tensor(list(given)))
        return self._work()[: len(ids)]

    def record(self, record: Recorder, expected: Tensor) -> bool:
        """Make a recording of the pass that was computed last, with these states; returns whether
        it computes the same."""
        # What was recorded knows the caches by where they lie, and does not keep them alive.
        self._work = record(self._work)
        apart = (self._work()[: len(expected)] - expected).abs().amax()
        # Damaged weights make NaN, however they are multiplied.
        return bool((apart <= _TOLERANCE * expected.abs().amax()) | expected.isnan().any())


class _GraphCache:
    """All that was recorded over one pair of caches, as they lie in memory."""

    def __init__(self, home: tuple[object, object], record: Recorder) -> None:
        self.home, self.record = home, record
        self.seen: set[_GraphKey] = set()
        self.made: dict[_GraphKey, _RecordedGraph] = {}


class CudaGraphRunner:
    """The recorded passes of a decoder. Not thread-safe.

    decode: what a pass does. longest, whole_source: how many tokens a row may come to, and how many
    positions a source usually has (None: any number).
    """

    def __init__(
        self,
        decode: _Decode,
        recorders: Callable[[], Recorder],
        longest: int,
        whole_source: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._decode, self._recorders = decode, recorders
        self._longest, self._whole_source = longest, whole_source
        self._numbers = device, dtype
        self._made: WeakKeyDictionary[KVCache, _GraphCache] = WeakKeyDictionary()
        self.works = True
        self.played = 0

    def __call__(
        self, ids: Sequence[Sequence[int]], batch: ForwardBatch, cache: KVCache, cross: CrossCache
    ) -> Tensor | None:
        """The states [rows, tokens, d_model] of a pass, its tokens in the cache; None for one that
        must be computed without a recording."""
        form = self._form_of(batch, cache, cross)
        if form is None:
            return None
        recordings = self._recordings(cache, cross)
        given = ids, batch.starts, cross.lengths[batch.sources]
        recording = recordings.made.pop(form, None)
        if recording is None:
            if form not in recordings.seen:  # who comes twice will come again
                recordings.seen.add(form)
                return None
            recording = _RecordedGraph(form, self._decode, (cache, cross), *self._numbers)
            states = recording.compute(*given).clone()
            if not self._record(recording, recordings.record, states):
                return states
        else:
            # The next pass of any form may write where this one's result lies.
            states = recording.compute(*given).clone()
            self.played += 1
        recordings.made[form] = recording
        if len(recordings.made) > _KEPT:
            del recordings.made[next(iter(recordings.made))]
        return states

    def _record(self, recording: _RecordedGraph, record: Recorder, states: Tensor) -> bool:
        """Whether a recording can be played from now on; else there will be no others either."""
        try:
            same = recording.record(record, states)
            why = None if same else "a recorded step computes something else"
        except RuntimeError as error:  # torch's for everything that a GPU or its driver cannot do
            why = str(error).partition("\n")[0]
        if why is None:
            return True
        warnings.warn(
            f"CUDA graphs do not work here, going on without them: {why}",
            RuntimeWarning,
            stacklevel=2,
        )
        self.works = False
        self._made.clear()
        return False

    def _recordings(self, cache: KVCache, cross: CrossCache) -> _GraphCache:
        home = cache.home, cross.home
        found = self._made.get(cache)
        if found is None or found.home != home:
            found = self._made[cache] = _GraphCache(home, self._recorders())
        return found

    def _form_of(self, batch: ForwardBatch, cache: KVCache, cross: CrossCache) -> _GraphKey | None:
        tokens, widths = batch.shape[1], batch.source_groups.widths
        if not self.works or tokens > _MOST_TOKENS or batch.capture is not None:
            return None
        if batch.slots.start or batch.source_groups.first or len(set(widths)) > 1:
            return None
        width, sources = widths[0], bucket(len(widths))
        # Rows that count for nothing write into slots that nobody has.
        free = batch.slots.stop == len(cache) and len(widths) == len(cross)
        if not free or sources * width > cache.capacity or sources > cross.capacity:
            sources = len(widths)
        length = padded_length(batch.length, self._longest)
        lengths = cross.lengths[batch.sources]
        if all(own == self._whole_source for own in lengths):
            return _GraphKey(sources, width, tokens, length, lengths[0], masked=False)
        source_length = 1 << (max(lengths) - 1).bit_length()
        source_length = min(max(source_length, 32), cross.room)
        return _GraphKey(sources, width, tokens, length, source_length, masked=True)


def bucket(count: int) -> int:
    """1, 2, 4, 8, 16, 24, 32, …: few numbers, none far above what is needed, nor above the next
    power of two, which is what caches have room for."""
    return 1 << (count - 1).bit_length() if count <= 8 else -(-count // 8) * 8


def recorders_for(device: torch.device) -> Callable[[], Recorder] | None:
    """What makes recorders of work on a device; None where it is done operation by operation: on
    CPUs, and where EDGEAPP_KERNELS is "torch"."""
    if device.type != "cuda" or kernels_disabled():
        return None
    return partial(_CudaRecorder, device)


class _CudaRecorder:
    """Its graphs share one pool of memory, so none may be played while another one runs. The
    allocator takes no pool back once all of its graphs are gone: then make another recorder."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, work: Work) -> Work:
        with torch.cuda.device(self._device):
            here = torch.cuda.current_stream()
            self._stream.wait_stream(here)
            with torch.cuda.stream(self._stream):
                work()  # whatever libraries set up for this stream must not be recorded
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU meanwhile.
            with torch.cuda.graph(
                graph, self._pool, self._stream, capture_error_mode="thread_local"
            ):
                result = work()
            here.wait_stream(self._stream)

        def play() -> Tensor:
            graph.replay()
            return result

        return play
