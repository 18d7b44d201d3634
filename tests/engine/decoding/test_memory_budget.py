"""The memory budget in random runs: never exceeded, and every request that fits ends."""

from __future__ import annotations

import random
import re
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipelines.engine import (
    Engine,
    GenerationOptions,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    Request,
)
from pipelines.engine.state import kv_cache as caches
from pipelines.errors import EngineError
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.modules import MODULES, VISION, made
from tests.fixtures.checkpoints import write_marian

pytestmark = pytest.mark.slow

MiB = 2**20


class CacheMeter:
    """Counts every byte of the native caches, including temporary copies while they grow."""

    def __init__(self) -> None:
        self.live = self.peak = 0

    def zeros(self, *shape: int, **options: Any) -> torch.Tensor:
        tensor = torch.zeros(*shape, **options)
        self.live += tensor.nbytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(tensor, self._gone, tensor.nbytes)
        return tensor

    def _gone(self, size: int) -> None:
        self.live -= size


@pytest.fixture(scope="module")
def token_probs() -> Iterator[CacheMeter]:
    token_probs = CacheMeter()
    with pytest.MonkeyPatch.context() as patch:
        names = {name: getattr(torch, name) for name in ("tensor", "arange", "Tensor")}
        patch.setattr(caches, "torch", SimpleNamespace(**names, zeros=token_probs.zeros))
        yield token_probs


@pytest.fixture(scope="module")
def models(
    token_probs: CacheMeter, checkpoints: Folders, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, dict[str, LoadedModel]]]:
    """A model of every kind, and the wrapped modules that they need."""
    small = tmp_path_factory.mktemp("small") / "marian"
    write_marian(small, layers=1, d_model=32, heads=2, ffn=64, seed=3)
    with Engine(device="cpu", compute_type="float32", threads=1, max_batch=6) as engine:
        yield (
            engine,
            {
                "marian": engine.load(checkpoints("marian:opus-mt-en-de")),
                "small": engine.load(small),
                "whisper": engine.load(checkpoints("whisper:tiny")),
                "bart": engine.wrap(made("bart")),
                "gpt2": engine.wrap(made("gpt2")),
            },
        )


def request_of(luck: random.Random, models: dict[str, LoadedModel]) -> tuple[str, Request]:
    name = luck.choice(["marian", "marian", "small", "whisper", "bart", "gpt2"])
    model, drafter = models[name], None
    if name in ("marian", "small"):
        source = token_sources(model, [luck.choice([2, 9, 31, 33, 70, 140])], luck.randrange(99))
        encoded = model.encode(source)[0]
        if name == "marian" and luck.random() < 0.4:
            drafter = ModelDrafter(models["small"], models["small"].encode(source)[0], gamma=3)
    elif name == "whisper":
        encoded = model.encode([mel_source(model, luck.randrange(3))])[0]
    elif name == "bart":
        encoded = model.encode([[luck.randrange(5, 100) for _ in range(luck.randrange(1, 30))]])[0]
    else:
        encoded = model.null_source()
    options = GenerationOptions(max_new_tokens=luck.randrange(1, 14))
    if drafter is None and luck.random() < 0.4:
        options = replace(options, beam_size=luck.randrange(2, 5))
    elif drafter is None and luck.random() < 0.4:
        return name, Request(
            encoded, (model.architecture.start_id,), options, drafter=NgramDrafter(gamma=2),
            priority=luck.choice(range(4)),
        )  # fmt: skip
    prompt = (model.architecture.start_id, *range(20, 20 + luck.randrange(4)))
    return name, Request(encoded, prompt, options, drafter=drafter, priority=luck.choice(range(4)))


def need_of(engine: Engine, request: Request) -> int:
    """The bytes that a request needs according to the engine's error message, rounded up."""
    engine._budget.limit = 1
    with pytest.raises(EngineError) as error:
        engine.generate([request])
    engine._budget.limit = None
    said = re.search(r"needs ([0-9.]+) MiB", str(error.value))
    assert said is not None, error.value
    return int((float(said[1]) + 0.06) * MiB)


@pytest.mark.parametrize("seed", range(6))
def test_random_runs_stay_within_the_budget(
    seed: int, models: tuple[Engine, dict[str, LoadedModel]], token_probs: CacheMeter
) -> None:
    engine, by_name = models
    luck = random.Random(seed)
    named = [request_of(luck, by_name) for _ in range(14)]
    requests = [request for _, request in named]
    expected = [result.tokens for result in engine.generate(requests)]
    needs = [need_of(engine, request) for request in requests]
    limit = int(max(needs) * luck.choice([1, 1, 1.5, 3]))
    engine._budget.limit = limit
    token_probs.peak = token_probs.live
    modules = [by_name["bart"], by_name["gpt2"]]
    streams = [engine.stream(request) for request in requests]
    cancelled = set(luck.sample(range(len(streams)), 3))
    for turn in range(12):
        stream = luck.choice(streams)
        next(stream, None)
        if turn == 6:
            for index in cancelled:
                streams[index].cancel()
        wrapped = sum(model.statistics.cache_bytes for model in modules)
        assert token_probs.live + wrapped <= limit
    tokens = [stream.result().tokens for stream in streams]
    assert token_probs.peak <= limit
    for index, (ours, wanted) in enumerate(zip(tokens, expected, strict=True)):
        assert ours == wanted or index in cancelled
    engine._budget.limit = None


@pytest.mark.parametrize("kind", [*MODULES, *VISION])
def test_the_cache_bound_of_a_module_is_tight(kind: str) -> None:
    """The bound is what its caches come to hold, plus the copy of a layer while they grow."""
    module = made(kind)
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.wrap(module)
        if kind in VISION:
            size = module.config.encoder.image_size
            encoded = model.encode([torch.randn(3, size, size)])[0]
        else:
            encoded = (
                model.encode([[5, 6, 7, 8, 9, 2]])[0]
                if model.architecture.source == "tokens"
                else model.null_source()
            )
        options = GenerationOptions(max_new_tokens=9, logit_filters=())
        start = model.architecture.start_id
        stream = engine.stream(Request(encoded, (start, 5), options))
        held = []
        for event in stream:
            if not event.final:
                held.append(model.statistics.cache_bytes)
                promised = model.backend.caches().tokens.bytes_for(1, 2 + len(held), encoded.length)
        assert held == sorted(held)
        assert len(held) == 8
        (layers,) = {model.architecture.decoder.layers}
        growth = held[1] - held[0]
        # The last token chosen is not read; the copy is of one layer.
        assert held[-1] + growth + -(-10 * growth // layers) == promised
