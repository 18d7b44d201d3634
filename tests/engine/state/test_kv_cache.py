"""The slot cache against a reference implementation: a list of rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipelines.engine import Engine
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.kv_cache import CrossCache, KVCache, StateSpec
from tests.engine.conftest import Folders

LAYERS, HEADS, ROOM, WIDTH = 2, 3, 150, 4
CPU = torch.device("cpu")


class CacheMachine(RuleBasedStateMachine):
    """Random alloc, write, truncate and reorder; the model keeps plain tensors per row."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KVCache([StateSpec(2, HEADS, WIDTH)] * LAYERS, ROOM, CPU, torch.float32)
        self.rows: list[list[torch.Tensor]] = []  # per row, per token: [layers, 2, heads, width]
        self.stamp = 0

    @precondition(lambda self: len(self.rows) < 6)
    @rule()
    def alloc(self) -> None:
        assert self.cache.alloc() == len(self.rows)
        self.rows.append([])

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), tokens=st.integers(1, 60))
    def write(self, data: st.DataObject, tokens: int) -> None:
        start = data.draw(st.integers(0, len(self.rows) - 1))
        stop = data.draw(st.integers(start + 1, len(self.rows)))
        lengths = [len(row) for row in self.rows[start:stop]]
        if max(lengths) + tokens > ROOM:
            return
        new = torch.arange(
            LAYERS * (stop - start) * tokens * 2 * HEADS * WIDTH, dtype=torch.float32
        )
        new = new.view(LAYERS, stop - start, tokens, 2, HEADS, WIDTH) + 10_000 * self.stamp
        self.stamp += 1
        positions = torch.tensor(lengths)[:, None] + torch.arange(tokens)
        own = torch.arange(start, stop)[:, None]
        at = lengths[0] if len(set(lengths)) == 1 else (own, positions)
        slots = slice(start, stop)
        self.cache.reserve(max(lengths) + tokens)
        for layer in range(LAYERS):
            self.cache.write(layer, slots, at, new[layer])
        self.cache.advance(slots, tokens)
        for i, row in enumerate(self.rows[start:stop]):
            row.extend(new[:, i, t] for t in range(tokens))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        kept = [i for i in range(len(self.rows)) if data.draw(st.booleans())]
        self.cache.reorder(kept)
        self.rows = [self.rows[i] for i in kept]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        length = data.draw(st.integers(0, len(self.rows[slot])))
        self.cache.truncate(slot, length)
        del self.rows[slot][length:]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        last = len(self.rows) - 1
        sources = data.draw(st.lists(st.integers(0, last), min_size=1, max_size=8))
        self.cache.reorder(sources)
        self.rows = [list(self.rows[source]) for source in sources]

    @invariant()
    def holds_what_was_written(self) -> None:
        assert self.cache.lengths == [len(row) for row in self.rows]
        for slot, row in enumerate(self.rows):
            for layer in range(LAYERS):
                keys, values = self.cache.read(layer, slice(slot, slot + 1), len(row))
                if row:
                    expected = torch.stack([token[layer] for token in row], dim=2)
                    torch.testing.assert_close(torch.stack([keys[0], values[0]]), expected)

    @invariant()
    def holds_only_finite_numbers(self) -> None:
        for layer in range(LAYERS):
            for part in self.cache.read(layer, slice(0, len(self.rows)), ROOM):
                assert torch.isfinite(part).all()


TestCache = pytest.mark.slow(CacheMachine.TestCase)
TestCache.settings = settings(max_examples=60, stateful_step_count=25)


def encoded(length: int, value: float) -> EncodedSource:
    part = tuple(torch.full((HEADS, length, WIDTH), value + i) for i in range(LAYERS))
    return EncodedSource(part, tuple(t + 0.5 for t in part), object())


def test_cross_cache_grows_for_longer_sources_and_keeps_the_others() -> None:
    cross = CrossCache(LAYERS, HEADS, WIDTH, CPU, torch.float32)
    for length, value in ((5, 1.0), (70, 10.0), (33, 20.0)):
        cross.store(cross.alloc(), encoded(length, value))
    assert cross.lengths == [5, 70, 33]
    cross.reorder([2, 1])
    assert cross.lengths == [33, 70]
    keys, values = cross.read(1, slice(0, 2), 33)
    assert (keys[0] == 21).all()
    assert (values[1] == 11.5).all()


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_a_shared_embedding_is_in_memory_once(compute_type: str, checkpoints: Folders) -> None:
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        backend = engine.load(checkpoints("marian:opus-mt-en-de")).backend
        assert isinstance(backend, NativeBackend)
        mine, others = backend._encoder._stem.embedding, backend._decoder._embedding
        assert mine.table.data_ptr() == others.table.data_ptr()
        assert mine.table.is_floating_point() == (compute_type == "float32")
