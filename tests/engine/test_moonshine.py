"""Native Moonshine: tokens equal transformers' `generate`, in batches of sounds of any lengths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.engine import Engine, GenerationOptions, LoadedModel, NgramDrafter, Request
from pipelines.engine.drafting import Drafting
from pipelines.engine.transformers_check import compare_with_transformers
from pipelines.errors import CheckpointError, RequestError
from tests.engine.rounding import int8_step
from tests.fixtures.moonshine import save_moonshine

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

LENGTH = 24
SOUNDS = [16_000, 41_234, 3_000, 895]  # samples; the last has a single state


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("moonshine")
    save_moonshine(path)
    return path


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(device="cpu", compute_type="float32") as engine:
        yield engine


def sound(samples: int) -> Tensor:
    noise = torch.randn(samples, generator=torch.Generator().manual_seed(samples)) * 0.02
    return noise + 0.2 * (torch.arange(samples) ** 1.5 / (samples / 8)).sin()


def options(model: LoadedModel, beam_size: int = 1) -> GenerationOptions:
    eos = model.architecture.eos_ids
    return GenerationOptions(max_new_tokens=LENGTH, eos_ids=eos, beam_size=beam_size)


def theirs(module: Any, samples: int, beam_size: int = 1) -> tuple[int, ...]:
    with torch.inference_mode():
        ids = module.generate(
            sound(samples)[None], max_new_tokens=LENGTH, num_beams=beam_size, do_sample=False,
            length_penalty=1.0, early_stopping=False,
        )  # fmt: skip
    return tuple(ids[0, 1:].tolist())


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_of_any_lengths_equals_generate(
    folder: Path, engine: Engine, beam_size: int
) -> None:
    import transformers as hf

    module = hf.MoonshineForConditionalGeneration.from_pretrained(folder)
    model = engine.load(folder)
    assert model.architecture.family == "moonshine"
    encoded = model.encode([sound(samples) for samples in SOUNDS])
    requests = [Request(each, (1,), options(model, beam_size)) for each in encoded]
    together = [result.tokens for result in engine.generate(requests)]
    assert together == [engine.generate([request])[0].tokens for request in requests]
    assert len(set(together)) > 2, "the sounds are told apart"
    for samples, tokens in zip(SOUNDS, together, strict=True):
        assert tokens == theirs(module, samples, beam_size)[: len(tokens)]


def test_the_published_shape_of_tiny(engine: Engine, tmp_path: Path) -> None:
    module = save_moonshine(tmp_path, "tiny")
    assert sum(parameter.numel() for parameter in module.parameters()) == 27_092_736
    model = engine.load(tmp_path)
    encoded = model.encode([sound(16_000)])
    tokens = engine.generate([Request(encoded[0], (1,), options(model))])[0].tokens
    assert tokens == theirs(module, 16_000)
    engine.unload(model)


def test_drafts_do_not_change_the_tokens(folder: Path, engine: Engine, tmp_path: Path) -> None:
    save_moonshine(tmp_path, seed=2, decoder_num_hidden_layers=1)
    model, draft_model = engine.load(folder), engine.load(tmp_path)
    plain = model.encode([sound(16_000)])[0]
    expected = engine.generate([Request(plain, (1,), options(model))])[0].tokens
    drafting = Drafting(model, draft_model)
    encoded = drafting.encode([sound(16_000)])[0]
    for source, drafter in (
        (plain, NgramDrafter()),
        (encoded, drafting.drafter_for(encoded, options(model))),
    ):
        result = engine.generate([Request(source, (1,), options(model), drafter=drafter)])[0]
        assert result.tokens == expected
    drafted = Request(plain, (1,), options(model), draft=expected[:8])
    assert engine.generate([drafted])[0].tokens == expected


def test_without_a_cache_the_tokens_are_the_same(folder: Path, engine: Engine) -> None:
    model = engine.load(folder)
    request = Request(model.encode([sound(16_000)])[0], (1,), options(model))
    with model.uncached().stream(request) as stream:
        assert stream.result().tokens == engine.generate([request])[0].tokens


def test_the_number_of_threads_changes_no_bit(folder: Path) -> None:
    found = []
    for threads in (1, 3):
        with Engine(device="cpu", compute_type="float32", threads=threads) as engine:
            found.append(engine.load(folder).encode([sound(90_000)])[0].keys[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("compute_type", ["bfloat16", "int8", "float16"])
def test_other_compute_types_differ_by_rounding(
    folder: Path, engine: Engine, compute_type: str
) -> None:
    target = [1, 5, 17, 33, 8]
    exact_model = engine.load(folder)
    exact = exact_model.score(exact_model.encode([sound(16_000)])[0], target)
    with Engine(device="cpu", compute_type=compute_type) as other:
        model = other.load(folder)
        assert model.compute_type == compute_type
        logits = model.score(model.encode([sound(16_000)])[0], target)
    step = int8_step() if compute_type == "int8" else 1
    assert (logits - exact).abs().max() < 0.1 * step * exact.abs().max()


def test_it_is_compared_with_transformers_by_the_check(folder: Path) -> None:
    comparison = compare_with_transformers(folder, tokens=16)
    assert comparison.tokens == 16
    assert comparison.difference is None
    assert comparison.max_logit_error < 1e-4


@pytest.mark.parametrize(
    "source",
    [
        torch.zeros(894),
        torch.zeros(2, 16_000),
        torch.zeros(65 * 16_000),
        torch.full((2000,), torch.nan),
    ],
)
def test_sound_that_does_not_fit_is_refused(folder: Path, engine: Engine, source: Tensor) -> None:
    with pytest.raises(RequestError, match="sound"):
        engine.load(folder).encode([source])


def test_stretched_positions_are_left_to_transformers(engine: Engine, tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    module = save_moonshine(tmp_path, rope_parameters=rope | {"partial_rotary_factor": 0.9})
    with pytest.warns(UserWarning, match="run by transformers"):
        model = engine.load(tmp_path)
    assert model.architecture.family == "other"
    encoded = model.encode([sound(16_000)])[0]
    tokens = engine.generate([Request(encoded, (1,), options(model))])[0].tokens
    assert tokens == theirs(module, 16_000)[: len(tokens)]


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", 50), ("partial_rotary_factor", 3), ("decoder_hidden_act", "tanh")],
)
def test_an_impossible_config_is_refused(
    folder: Path, engine: Engine, tmp_path: Path, key: str, value: object
) -> None:
    content = json.loads((folder / "config.json").read_text("utf-8"))
    (content["rope_parameters"] if key == "partial_rotary_factor" else content)[key] = value
    (tmp_path / "config.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json is invalid"):
        engine.load(tmp_path)
