"""CUDA graphs, on a simulated device: replays equal eager passes, fallbacks, memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine import (
    EncodedSource,
    Engine,
    GenerationOptions,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    NoRepeatNgram,
    Request,
    SuppressTokens,
)
from pipelines.engine import engine as engine_module
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.model import cuda_graphs as cuda_graphs_module
from pipelines.engine.model import decoder as decoder_module
from pipelines.engine.model.cuda_graphs import (
    CudaGraphRunner,
    GraphRecorder,
    StaticPass,
    bucket,
    graph_recorders,
)
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.other_device import OTHER, other_device
from tests.engine.recorder import OperationRecorder
from tests.engine.test_families import SOURCES, made

pytestmark = pytest.mark.slow

Start = Callable[..., Engine]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes float32 engines on the simulated device, with these graph recorders."""
    engines: list[Engine] = []

    def make(
        recorders: Callable[[], GraphRecorder] = OperationRecorder, max_batch: int = 64
    ) -> Engine:
        monkeypatch.setattr(decoder_module, "graph_recorders", lambda device: recorders)
        engines.append(Engine(compute_type="float32", threads=1, max_batch=max_batch))
        return engines[-1]

    monkeypatch.setattr(engine_module, "choose_device", lambda device: OTHER)
    with other_device():
        yield make
        for engine in engines:
            engine.close()


def graph_runner_of(model: LoadedModel, device: torch.device = OTHER) -> CudaGraphRunner:
    backend = model.backend
    assert isinstance(backend, NativeBackend)
    assert backend.plan.device == device
    runner = backend._decoder._graph_runner
    assert runner is not None
    return runner


def sources_of(model: LoadedModel) -> list[Any]:
    if model.architecture.source == "audio":
        return [mel_source(model, seed) for seed in range(3)]
    return token_sources(model, [5, 9, 31, 33, 2, 70, 12])


def requests_of(
    model: LoadedModel, encoded_sources: Sequence[EncodedSource], most: int = 80
) -> list[Request]:
    """Of many lengths, so that they join and leave; with prompts, filters and log-probabilities."""
    start, requests = model.architecture.start_id, []
    for index, encoded in enumerate(encoded_sources):
        options = GenerationOptions(
            max_new_tokens=min(20 + 17 * index, most),
            logit_filters=(SuppressTokens((3, 4, 5)), NoRepeatNgram(3)) if index % 3 == 1 else (),
            logprobs=index % 2 == 0,
        )
        requests.append(Request(encoded, (start, 7, 9)[: 1 + index % 3], options))
    return requests


def assert_same(pairs: Sequence[tuple[Engine, Sequence[Request]]], **changed: Any) -> None:
    """Both engines generate the same for their requests with these options changed."""
    ours, theirs = (
        engine.generate(
            [replace(each, options=replace(each.options, **changed)) for each in requests]
        )
        for engine, requests in pairs
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.tokens == other.tokens
        assert mine.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def both(
    folder: Path, start: Start, engine: Engine, most: int = 80, **how: Any
) -> tuple[LoadedModel, list[tuple[Engine, list[Request]]]]:
    """A model on the simulated device, and the same requests for each engine."""
    other, pairs = start(**how), []
    for each in (other, engine):
        model = each.load(folder)
        encoded_sources = model.encode(sources_of(model))
        pairs.append((each, requests_of(model, encoded_sources, most)))
    return other.load(folder), pairs


@pytest.mark.parametrize("spec", ["marian:opus-mt-en-de", "whisper:tiny"])
def test_tokens_equal_eager_ones(
    spec: str, start: Start, engine: Engine, checkpoints: Folders
) -> None:
    """Rows join and leave, their caches grow, and their lengths cross graph keys."""
    model, pairs = both(checkpoints(spec), start, engine, max_batch=4)
    assert_same(pairs)
    assert graph_runner_of(model).replays > 40
    assert graph_runner_of(model).enabled


@pytest.mark.parametrize("spec", ["marian:opus-mt-en-de", "whisper:tiny"])
def test_beams_equal_eager_ones(
    spec: str, start: Start, engine: Engine, checkpoints: Folders
) -> None:
    model, pairs = both(checkpoints(spec), start, engine, most=20)
    assert_same([(each, requests[:3]) for each, requests in pairs], beam_size=3)
    assert graph_runner_of(model).replays > 10
    for _, requests in pairs:  # of another width than its neighbors
        requests[1] = replace(requests[1], options=replace(requests[1].options, beam_size=2))
    assert_same(pairs)


def test_drafts_equal_eager_ones(start: Start, engine: Engine, checkpoints: Folders) -> None:
    """Verification passes of several tokens are recorded, of both models."""
    folder = checkpoints("marian:opus-mt-en-de")
    model, pairs = both(folder, start, engine, most=30)
    for _, requests in pairs:
        for index, request in enumerate(requests):
            drafter: Any = NgramDrafter(gamma=3)
            if index % 2:
                own = next(m for m in (model, engine.load(folder)) if m.owns(request.encoded))
                drafter = ModelDrafter(own, request.encoded, gamma=2)
            requests[index] = replace(request, drafter=drafter)
    assert_same(pairs)
    assert graph_runner_of(model).replays > 10


@pytest.mark.parametrize("kind", ["t5", "mbart"])
def test_other_families_equal_eager_ones(
    kind: str, start: Start, engine: Engine, tmp_path: Path
) -> None:
    made(kind).save_pretrained(tmp_path)
    pairs = []
    for each in (start(), engine):
        model = each.load(tmp_path)
        pairs.append((each, requests_of(model, model.encode(SOURCES), 30)))
    assert_same(pairs)
    model = pairs[0][0].load(tmp_path)
    assert graph_runner_of(model).replays > 10
    engine.unload(engine.load(tmp_path))


def test_attention_capture_runs_eagerly(start: Start, engine: Engine, checkpoints: Folders) -> None:
    model, pairs = both(checkpoints("whisper:tiny"), start, engine, most=8)
    wanted = ((0, 1), (1, 0))
    ours, theirs = (
        each.generate([replace(request, attention=wanted) for request in requests])
        for each, requests in pairs
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.tokens == other.tokens
        assert mine.attention is not None
        assert other.attention is not None
        torch.testing.assert_close(mine.attention, other.attention, atol=1e-5, rtol=1e-4)
    assert not graph_runner_of(model).replays


class FailingRecorder:
    """A recorder that fails, or whose replay computes something else."""

    def __init__(self, wrong: bool) -> None:
        self._wrong = wrong

    def __call__(self, work: StaticPass) -> StaticPass:
        if not self._wrong:
            raise RuntimeError("CUDA error: operation not permitted\nmore lines")
        return lambda: work() * 1.5


@pytest.mark.parametrize(
    ("wrong", "why"), [(False, "operation not permitted$"), (True, "computes something else$")]
)
def test_failed_recording_disables_graphs(
    wrong: bool, why: str, start: Start, engine: Engine, checkpoints: Folders
) -> None:
    folder = checkpoints("marian:opus-mt-en-de")
    model, pairs = both(folder, start, engine, 30, recorders=lambda: FailingRecorder(wrong))
    assert "graphs" in model.backend.kernels
    with pytest.warns(RuntimeWarning, match=f"CUDA graphs do not work here.*{why}") as seen:
        assert_same(pairs)
    assert len(seen) == 1
    assert not graph_runner_of(model).replays
    assert "graphs" not in model.backend.kernels


def test_caches_are_not_kept_alive(start: Start, checkpoints: Folders) -> None:
    other = start()
    model = other.load(checkpoints("marian:opus-mt-en-de"))
    graphs, batch = graph_runner_of(model), model._batch
    other.generate(requests_of(model, model.encode(sources_of(model))))
    assert len(graphs._caches) == 1
    batch.release_caches()
    gc.collect()
    assert not graphs._caches


def test_number_of_graphs_is_limited(
    start: Start, engine: Engine, checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs_module, "_MAX_GRAPHS", 2)
    model, pairs = both(checkpoints("marian:opus-mt-en-de"), start, engine)
    for _ in range(2):
        assert_same(pairs)
    (graph_cache,) = graph_runner_of(model)._caches.values()
    assert len(graph_cache.graphs) == 2
    assert graph_runner_of(model).replays > 40


@given(st.integers(1, 1000))
def test_buckets_are_large_enough_and_fit_the_caches(count: int) -> None:
    room = 1 << (count - 1).bit_length()
    assert count <= bucket(count) <= room
    assert bucket(bucket(count)) == bucket(count)
    assert bucket(count) - count < 8


def test_graphs_are_recorded_on_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_recorders(torch.device("cpu")) is None
    assert graph_recorders(torch.device("cuda")) is not None
    monkeypatch.setenv("EDGEAPP_KERNELS", "torch")
    assert graph_recorders(torch.device("cuda")) is None
