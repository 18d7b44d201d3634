"""CUDA graphs: decoder passes recorded once per shape and replayed with one call.

A replay launches all kernels of a pass at once, so that the GPU no longer waits for Python. The
shapes of passes are rounded up to few (`_GraphKey`); a pass is recorded the second time its key
comes up.
"""

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

# Longer passes are not recorded: they read prompts, each once, and keep a GPU busy by themselves.
_MAX_TOKENS = 16

# Graphs kept per cache; the least recently used one is dropped.
_MAX_GRAPHS = 64

# A graph is accepted if max abs(replay − eager) ≤ 2 % of max abs(eager): both use the same kernels.
_TOLERANCE = 0.02

# A computation whose inputs and outputs stay at fixed addresses.
StaticPass = Callable[[], Tensor]

# Runs a computation, perhaps more than once, and returns its replay.
GraphRecorder = Callable[[StaticPass], StaticPass]


class _Decode(Protocol):
    """`Decoder._decode`: a pass operation by operation."""

    def __call__(
        self,
        ids: Tensor,
        position_index: Tensor,
        batch: ForwardBatch,
        metadata: AttentionMetadata,
        cache: KVCache,
        cross: CrossCache,
    ) -> Tensor: ...


@dataclass(frozen=True)
class _GraphKey:
    """The shape of the passes that one graph serves.

    Attributes:
        sources: number of sources; a pass may have fewer, the results of the rest are ignored.
        sequences_per_source: equally many on each.
        tokens: new tokens per sequence.
        kv_length, source_length: positions of the caches that are read.
        masked: whether sources may be shorter than source_length.
    """

    sources: int
    sequences_per_source: int
    tokens: int
    kv_length: int
    source_length: int
    masked: bool

    @property
    def sequences(self) -> int:
        return self.sources * self.sequences_per_source


class _Graph:
    """A pass of one shape, eager at first, replayed once it is recorded.

    All inputs are parts of one int64 tensor, so that one copy to the device fills them.
    """

    def __init__(
        self,
        key: _GraphKey,
        decode: _Decode,
        caches: tuple[KVCache, CrossCache],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._key = key
        sizes = [key.sequences * key.tokens, key.sequences, key.sources]
        self._inputs = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        ids, past_lengths, source_lengths = torch.split(self._inputs, sizes)
        ids = ids.view(key.sequences, key.tokens)
        source_groups = SourceGroups(0, (key.sequences_per_source,) * key.sources)
        batch = ForwardBatch(
            (key.sequences, key.tokens), slice(0, key.sequences), (), (), source_groups, None
        )

        def static_pass() -> Tensor:
            positions = past_lengths[:, None] + torch.arange(key.tokens, device=device)
            sources = (key.source_length, source_lengths if key.masked else None)
            metadata = static_attention_metadata(
                positions, key.kv_length, *sources, source_groups, dtype
            )
            return decode(ids, positions, batch, metadata, *caches)

        self._pass: StaticPass = static_pass

    def run(
        self,
        ids: Sequence[Sequence[int]],
        past_lengths: Sequence[int],
        source_lengths: Sequence[int],
    ) -> Tensor:
        """Hidden states [sequences, tokens, d_model] of a pass; the next run overwrites them."""
        key = self._key
        missing = key.sequences - len(ids)
        inputs = chain(
            chain.from_iterable(ids), [0] * (missing * key.tokens), past_lengths, [0] * missing,
            source_lengths, [key.source_length] * (key.sources - len(source_lengths)),
        )  # fmt: skip
        self._inputs.copy_(torch.tensor(list(inputs)))
        return self._pass()[: len(ids)]

    def record(self, record: GraphRecorder, expected: Tensor) -> bool:
        """Record the last pass again; return whether a replay computes its hidden states as they
        are expected, computed eagerly."""
        # The recorded graph holds addresses only, so it does not keep the caches alive.
        self._pass = record(self._pass)
        error = (self._pass()[: len(expected)] - expected).abs().amax()
        # Damaged weights give NaN in either way.
        return bool((error <= _TOLERANCE * expected.abs().amax()) | expected.isnan().any())


class _GraphCache:
    """The graphs over one pair of caches, valid as long as their storage keys stay the same."""

    def __init__(self, storage_keys: tuple[object, object], record: GraphRecorder) -> None:
        self.storage_keys, self.record = storage_keys, record
        self.seen: set[_GraphKey] = set()
        self.graphs: dict[_GraphKey, _Graph] = {}


class CudaGraphRunner:
    """Runs passes of a decoder by CUDA graphs. Not thread-safe.

    Args:
        decode: an eager pass.
        recorders: makes a recorder for each pair of caches.
        max_length: longest sequence.
        full_source: source positions of sources that are all of one length (audio), which need no
            mask; None for text.
        dtype: of the masks.

    Attributes:
        enabled: False once recording has failed; `__call__` then always returns None.
        replays: number of passes replayed.
    """

    def __init__(
        self,
        decode: _Decode,
        recorders: Callable[[], GraphRecorder],
        max_length: int,
        full_source: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._decode, self._recorders = decode, recorders
        self._max_length, self._full_source = max_length, full_source
        self._device, self._dtype = device, dtype
        self._caches: WeakKeyDictionary[KVCache, _GraphCache] = WeakKeyDictionary()
        self.enabled = True
        self.replays = 0

    def __call__(
        self, ids: Sequence[Sequence[int]], batch: ForwardBatch, cache: KVCache, cross: CrossCache
    ) -> Tensor | None:
        """Run a pass over ids [sequences][tokens], writing its tokens to the cache.

        Returns hidden states [sequences, tokens, d_model]; None for a pass that has to run eagerly.
        """
        key = self._key_of(batch, cache, cross)
        if key is None:
            return None
        graph_cache = self._graph_cache(cache, cross)
        inputs = ids, batch.past_lengths, cross.lengths[batch.source_slots]
        graph = graph_cache.graphs.pop(key, None)
        if graph is None:
            if key not in graph_cache.seen:  # recorded the second time
                graph_cache.seen.add(key)
                return None
            graph = _Graph(key, self._decode, (cache, cross), self._device, self._dtype)
            states = graph.run(*inputs).clone()
            if not self._record(graph, graph_cache.record, states):
                return states
        else:
            # Cloned: graphs share a memory pool, so the next replay may overwrite the result.
            states = graph.run(*inputs).clone()
            self.replays += 1
        graph_cache.graphs[key] = graph
        if len(graph_cache.graphs) > _MAX_GRAPHS:
            del graph_cache.graphs[next(iter(graph_cache.graphs))]
        return states

    def _record(self, graph: _Graph, record: GraphRecorder, states: Tensor) -> bool:
        """Record a graph; returns whether it can be replayed. If not, disables this runner."""
        try:
            same = graph.record(record, states)
            reason = None if same else "a recorded step computes something else"
        except RuntimeError as error:  # torch's for whatever a GPU or its driver cannot do
            reason = str(error).partition("\n")[0]
        if reason is None:
            return True
        warnings.warn(
            f"CUDA graphs do not work here, going on without them: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        self.enabled = False
        self._caches.clear()
        return False

    def _graph_cache(self, cache: KVCache, cross: CrossCache) -> _GraphCache:
        """The graphs over these caches; none yet if the caches were reallocated."""
        storage_keys = cache.storage_key, cross.storage_key
        graph_cache = self._caches.get(cache)
        if graph_cache is None or graph_cache.storage_keys != storage_keys:
            graph_cache = self._caches[cache] = _GraphCache(storage_keys, self._recorders())
        return graph_cache

    def _key_of(self, batch: ForwardBatch, cache: KVCache, cross: CrossCache) -> _GraphKey | None:
        """The key of a pass, or None if no graph can serve it."""
        tokens, counts = batch.shape[1], batch.source_groups.sequence_counts
        if not self.enabled or tokens > _MAX_TOKENS or batch.capture is not None:
            return None
        if batch.slots.start or batch.source_groups.first_slot or len(set(counts)) > 1:
            return None
        sequences_per_source, sources = counts[0], bucket(len(counts))
        # The sequences that pad a pass to its key write to slots, which must be unused.
        unused = batch.slots.stop == len(cache) and len(counts) == len(cross)
        fits = (
            sources * sequences_per_source <= cache.slot_capacity and sources <= cross.slot_capacity
        )
        if not unused or not fits:
            sources = len(counts)
        kv_length = padded_length(batch.kv_length, self._max_length)
        lengths = cross.lengths[batch.source_slots]
        if all(length == self._full_source for length in lengths):
            return _GraphKey(
                sources, sequences_per_source, tokens, kv_length, lengths[0], masked=False
            )
        source_length = 1 << (max(lengths) - 1).bit_length()
        source_length = min(max(source_length, 32), cross.position_capacity)
        return _GraphKey(
            sources, sequences_per_source, tokens, kv_length, source_length, masked=True
        )


def bucket(count: int) -> int:
    """Round a number of sources up to 1, 2, 4, 8, 16, 24, 32, …

    Never above the next power of two, which is the slot capacity of the caches.
    """
    return 1 << (count - 1).bit_length() if count <= 8 else -(-count // 8) * 8


def graph_recorders(device: torch.device) -> Callable[[], GraphRecorder] | None:
    """A factory of recorders for a device.

    None where passes run eagerly: on CPUs, and where EDGEAPP_KERNELS is "torch".
    """
    if device.type != "cuda" or kernels_disabled():
        return None
    return partial(_CudaRecorder, device)


class _CudaRecorder:
    """Records CUDA graphs that share one memory pool.

    None of them may be replayed while another one runs. The allocator does not reuse a pool once
    all its graphs are gone; a new recorder is needed then.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, static_pass: StaticPass) -> StaticPass:
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                static_pass()  # warm-up: libraries initialize their state for this stream
            graph = torch.cuda.CUDAGraph()
            # thread_local: other threads may use the GPU meanwhile.
            with torch.cuda.graph(
                graph, self._pool, self._stream, capture_error_mode="thread_local"
            ):
                result = static_pass()
            current.wait_stream(self._stream)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
