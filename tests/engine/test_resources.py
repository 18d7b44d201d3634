"""Timeouts, the memory budget, statistics, and loading beside other models."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from pipelines.engine import Engine, FinishReason, GenerationOptions, LoadedModel, Request
from pipelines.errors import EngineError, OptionError
from tests.engine.conftest import Folders, mel_source, token_sources

OPTIONS = GenerationOptions(max_new_tokens=12)


def requests_of(model: LoadedModel, count: int) -> list[Request]:
    start = model.architecture.start_id
    encoded_sources = model.encode(token_sources(model, [4] * count))
    return [Request(encoded, (start,), OPTIONS) for encoded in encoded_sources]


def test_timeouts(engine: Engine, marian: LoadedModel) -> None:
    request, other = requests_of(marian, 2)
    whole = engine.generate([request])[0]
    late = engine.stream(replace(request, timeout_s=0.0))
    neighbor = engine.stream(other)
    result = late.result()
    assert result.reason is FinishReason.TIMEOUT
    assert result.tokens == ()
    assert len(neighbor.result().tokens) == 12
    assert engine.generate([replace(request, timeout_s=60.0)])[0].tokens == whole.tokens
    stream = engine.stream(replace(request, timeout_s=60.0))
    next(stream)
    stream._state._deadline = 0.0
    result = stream.result()
    assert result.reason is FinishReason.TIMEOUT
    assert result.tokens == whole.tokens[: len(result.tokens)] != ()


def test_statistics(checkpoints: Folders) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1, max_batch=2) as small:
        model = small.load(checkpoints("marian:opus-mt-en-de"))
        assert model.statistics.requests == model.statistics.steps == 0
        requests = requests_of(model, 5)
        small.generate(requests)
        done = model.statistics
        assert (done.requests, done.tokens) == (5, 60)
        assert 1.0 < done.occupancy <= 2.0
        assert done.steps == pytest.approx(60 / done.occupancy)
        assert done.queue_s > 0
        assert done.cache_bytes > 0
        assert (done.running, done.waiting) == (0, 0)
        streams = [small.stream(request) for request in requests]
        next(streams[0])
        assert (model.statistics.running, model.statistics.waiting) == (2, 3)


@pytest.mark.slow
def test_requests_without_memory_wait(checkpoints: Folders) -> None:
    """Two models under a budget that holds two sequences of one of them."""
    folders = [checkpoints(f"marian:{name}") for name in ("opus-mt-en-de", "opus-mt-de-en")]
    with Engine(device="cpu", compute_type="float32", threads=1) as free:
        models = [free.load(folder) for folder in folders]
        plain = [free.generate(requests_of(model, 4)) for model in models]
        backend = models[0].backend
        caches = backend.caches()
        budget = caches.tokens.bytes_for(2, 13, 4) + caches.sources.bytes_for(2, 4)
    with Engine(
        device="cpu", compute_type="float32", threads=1, cache_budget_bytes=budget
    ) as tight:
        models = [tight.load(folder) for folder in folders]
        requests = [request for model in models for request in requests_of(model, 4)]
        requests[6] = replace(requests[6], priority=0)
        results = tight.generate(requests)
        expected = [result.tokens for each in plain for result in each]
        assert [result.tokens for result in results] == expected
        assert sum(model.statistics.cache_bytes for model in models) <= budget
        wide = replace(requests[0], options=replace(OPTIONS, beam_size=5))
        neighbor = tight.stream(requests[1])
        with pytest.raises(EngineError, match=r"needs .* MiB of cache for 5 sequence.*budget is"):
            tight.generate([wide])
        assert neighbor.result().tokens == expected[1]


def test_a_closed_engine_says_so(checkpoints: Folders) -> None:
    folder = checkpoints("marian:opus-mt-en-de")
    engine = Engine(device="cpu", compute_type="float32", threads=1)
    model = engine.load(folder)
    (request,) = requests_of(model, 1)
    engine.close()
    uses = [
        lambda: engine.stream(request),
        lambda: engine.generate([request]),
        lambda: engine.load(folder),
        lambda: model.stream(request),
        lambda: model.encode([[4]]),
        lambda: model.score(request.encoded, request.prompt),
    ]
    for use in uses:
        with pytest.raises(EngineError, match="the engine was closed"):
            use()
    engine.unload(model)
    engine.close()  # again


def test_a_budget_of_zero_is_refused() -> None:
    with pytest.raises(OptionError, match="cache_budget_bytes"):
        Engine(device="cpu", cache_budget_bytes=0)


def test_an_urgent_request_gets_the_next_step(
    engine: Engine, marian: LoadedModel, whisper: LoadedModel
) -> None:
    """Across models: an urgent request gets the next step, and all steps until it ends."""
    batch = engine.stream(replace(requests_of(marian, 1)[0], priority=3))
    next(batch)
    before = marian.statistics.steps
    start = whisper.architecture.start_id
    encoded = whisper.encode([mel_source(whisper)])[0]
    live = Request(encoded, (start,), OPTIONS, priority=0)
    assert len(engine.generate([live])[0].tokens) == 12
    assert marian.statistics.steps == before
    assert len(batch.result().tokens) == 12


def test_a_model_decodes_while_another_one_is_loaded(
    checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And two threads that load the same model load it once."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        begun, go_on, build = threading.Event(), threading.Event(), Engine._build
        built: list[Any] = []

        def slow_build(self: Engine, *key: Any) -> Any:
            begun.set()
            assert go_on.wait(60)
            built.append(key)
            return build(self, *key)

        monkeypatch.setattr(Engine, "_build", slow_build)
        loaded: list[LoadedModel] = []
        other = checkpoints("marian:opus-mt-de-en")
        threads = [
            threading.Thread(target=lambda: loaded.append(engine.load(other)), daemon=True)
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert begun.wait(60)
        decoded: list[int] = []

        def decode() -> None:
            decoded.append(len(engine.generate(requests_of(model, 1))[0].tokens))
            decoded.append(len(engine.models))

        decoding = threading.Thread(target=decode, daemon=True)
        decoding.start()
        decoding.join(60)
        assert decoded == [12, 1]
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert len(built) == 1
        assert loaded[0] is loaded[1]
