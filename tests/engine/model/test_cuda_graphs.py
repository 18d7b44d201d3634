"""Recorded passes, on a device that stands in for a GPU: what they hold, and when they are left."""

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
from pipelines.engine.model import cuda_graphs as replays_module
from pipelines.engine.model import decoder as decoder_module
from pipelines.engine.model.cuda_graphs import CudaGraphRunner, bucket
from pipelines.engine.model.cuda_recorder import Recorder, Work, recorders_for
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.other_device import OTHER, other_device
from tests.engine.recorder import OperationRecorder
from tests.engine.test_families import SOURCES, made

Start = Callable[..., Engine]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes engines on the other device, in float32, whose passes go through these recorders."""
    engines: list[Engine] = []

    def make(recorders: Callable[[], Recorder] = OperationRecorder, max_batch: int = 64) -> Engine:
        monkeypatch.setattr(decoder_module, "recorders_for", lambda device: recorders)
        engines.append(Engine(compute_type="float32", threads=1, max_batch=max_batch))
        return engines[-1]

    monkeypatch.setattr(engine_module, "choose_device", lambda device: OTHER)
    with other_device():
        yield make
        for engine in engines:
            engine.close()


def replays_of(model: LoadedModel, device: torch.device = OTHER) -> CudaGraphRunner:
    backend = model.backend
    assert isinstance(backend, NativeBackend)
    assert backend.plan.device == device
    graphs = backend._decoder._graph_runner
    assert graphs is not None
    return graphs


def sources_of(model: LoadedModel) -> list[Any]:
    if model.architecture.source == "audio":
        return [mel_source(model, seed) for seed in range(3)]
    return token_sources(model, [5, 9, 31, 33, 2, 70, 12])


def requests_of(
    model: LoadedModel, encoded_sources: Sequence[EncodedSource], most: int = 80
) -> list[Request]:
    """Of many lengths, so that they join and leave; with prompts, rules and log-probabilities."""
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
    """Both engines generate the same for their requests, so changed."""
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
    """A model on the other device, and each engine with the same requests."""
    other, pairs = start(**how), []
    for each in (other, engine):
        model = each.load(folder)
        encoded_sources = model.encode(sources_of(model))
        pairs.append((each, requests_of(model, encoded_sources, most)))
    return other.load(folder), pairs


@pytest.mark.parametrize("spec", ["marian:opus-mt-en-de", "whisper:tiny"])
def test_tokens_are_the_same(spec: str, start: Start, engine: Engine, checkpoints: Folders) -> None:
    """Rows join and leave, their caches grow, and cross the lengths at which forms change."""
    model, pairs = both(checkpoints(spec), start, engine, max_batch=4)
    assert_same(pairs)
    assert replays_of(model).played > 40
    assert replays_of(model).works


@pytest.mark.parametrize("spec", ["marian:opus-mt-en-de", "whisper:tiny"])
def test_so_are_those_of_beams(
    spec: str, start: Start, engine: Engine, checkpoints: Folders
) -> None:
    model, pairs = both(checkpoints(spec), start, engine, most=20)
    assert_same([(each, requests[:3]) for each, requests in pairs], beam_size=3)
    assert replays_of(model).played > 10
    for _, requests in pairs:  # of another width than its neighbours
        requests[1] = replace(requests[1], options=replace(requests[1].options, beam_size=2))
    assert_same(pairs)


def test_so_are_those_of_drafts(start: Start, engine: Engine, checkpoints: Folders) -> None:
    """What several tokens at once are read by is recorded, too, of both models."""
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
    assert replays_of(model).played > 10


@pytest.mark.parametrize("kind", ["t5", "mbart"])
def test_so_are_those_of_other_families(
    kind: str, start: Start, engine: Engine, tmp_path: Path
) -> None:
    made(kind).save_pretrained(tmp_path)
    pairs = []
    for each in (start(), engine):
        model = each.load(tmp_path)
        pairs.append((each, requests_of(model, model.encode(SOURCES), 30)))
    assert_same(pairs)
    model = pairs[0][0].load(tmp_path)
    assert replays_of(model).played > 10
    engine.unload(engine.load(tmp_path))


def test_attention_is_read_out_beside_them(
    start: Start, engine: Engine, checkpoints: Folders
) -> None:
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
    assert not replays_of(model).played


class Refusing:
    """A driver that cannot record, or records something else."""

    def __init__(self, wrong: bool) -> None:
        self._wrong = wrong

    def __call__(self, work: Work) -> Work:
        if not self._wrong:
            raise RuntimeError("CUDA error: operation not permitted\nmore lines")
        return lambda: work() * 1.5


@pytest.mark.parametrize(
    ("wrong", "why"), [(False, "operation not permitted$"), (True, "computes something else$")]
)
def test_where_recording_fails_it_goes_on_without(
    wrong: bool, why: str, start: Start, engine: Engine, checkpoints: Folders
) -> None:
    folder = checkpoints("marian:opus-mt-en-de")
    model, pairs = both(folder, start, engine, 30, recorders=lambda: Refusing(wrong))
    assert "graphs" in model.backend.kernels
    with pytest.warns(RuntimeWarning, match=f"CUDA graphs do not work here.*{why}") as seen:
        assert_same(pairs)
    assert len(seen) == 1
    assert not replays_of(model).played
    assert "graphs" not in model.backend.kernels


def test_caches_are_not_kept_alive(start: Start, checkpoints: Folders) -> None:
    other = start()
    model = other.load(checkpoints("marian:opus-mt-en-de"))
    graphs, batch = replays_of(model), model._batch
    other.generate(requests_of(model, model.encode(sources_of(model))))
    assert len(graphs._made) == 1
    batch.release_caches()
    gc.collect()
    assert not graphs._made


def test_few_are_kept(
    start: Start, engine: Engine, checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays_module, "_KEPT", 2)
    model, pairs = both(checkpoints("marian:opus-mt-en-de"), start, engine)
    for _ in range(2):
        assert_same(pairs)
    (recordings,) = replays_of(model)._made.values()
    assert len(recordings.made) == 2
    assert replays_of(model).played > 40


@given(st.integers(1, 1000))
def test_buckets_hold_what_is_in_them_and_fit_their_caches(count: int) -> None:
    room = 1 << (count - 1).bit_length()
    assert count <= bucket(count) <= room
    assert bucket(bucket(count)) == bucket(count)
    assert bucket(count) - count < 8


def test_only_gpus_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorders_for(torch.device("cpu")) is None
    assert recorders_for(torch.device("cuda")) is not None
    monkeypatch.setenv("EDGEAPP_KERNELS", "torch")
    assert recorders_for(torch.device("cuda")) is None
