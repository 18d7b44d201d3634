"""Families that are not native equal transformers' `generate`: greedy, with beams, with drafts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from pipelines.engine import (
    Drafting,
    Engine,
    GenerationOptions,
    NgramDrafter,
    Request,
    compare_with_transformers,
)
from pipelines.errors import CheckpointError, RequestError, UnsupportedTask
from pipelines.families import FAMILIES
from tests.engine.other_families import OTHER_FAMILIES, other_module, source_of

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

LENGTH = 12
# Tokens before those that `generate` has generated.
CAPTIONS = {"git": 1, "blip": 1, "blip-2": 5}
# Families in which rows influence each other, or take one token a pass.
ONE_BY_ONE = ("fsmt", "prophetnet", "nllb-moe", "switch")


def ours(
    engine: Engine,
    model: Any,
    family: str,
    beam_size: int = 1,
    drafts: bool = False,
    seed: int = 0,
) -> Any:
    architecture = model.architecture
    options = GenerationOptions(
        max_new_tokens=LENGTH, eos_ids=architecture.eos_ids, beam_size=beam_size
    )
    encoded = model.encode([source_of(family, seed)])[0]
    drafter = NgramDrafter() if drafts else None
    request = Request(encoded, (architecture.start_id,), options, drafter=drafter)
    return [*engine.generate([request])[0].tokens]


def theirs(module: Any, family: str, start: int, beam_size: int, seed: int = 0) -> list[int]:
    source = source_of(family, seed)
    batch = torch.tensor([source]) if isinstance(source, list) else source[None]
    if family in CAPTIONS:
        given = {"input_ids": torch.tensor([[start]])} if family == "git" else {}
        ids = module.generate(
            pixel_values=batch, max_new_tokens=LENGTH, num_beams=beam_size, do_sample=False, **given
        )[0].tolist()
        return ids[CAPTIONS[family] :]
    ids = module.generate(
        batch, max_new_tokens=LENGTH, num_beams=beam_size, do_sample=False,
        decoder_start_token_id=start, forced_eos_token_id=None, forced_bos_token_id=None,
        length_penalty=1.0, early_stopping=False,
    )  # fmt: skip
    return [*ids[0].tolist()[1:]]


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_it_equals_generate(family: str) -> None:
    module = other_module(family)
    with Engine(device="cpu") as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        model = engine.wrap(module)
        start = model.architecture.start_id
        greedy = ours(engine, model, family)
        assert greedy
        assert greedy == theirs(module, family, start, 1)[: len(greedy)]
        assert ours(engine, model, family, drafts=True) == greedy
        for seed in (1, 2):
            other = ours(engine, model, family, seed=seed)
            assert other == theirs(module, family, start, 1, seed)[: len(other)]
        beams = ours(engine, model, family, beam_size=3)
        assert beams == theirs(module, family, start, 3)[: len(beams)]


@pytest.mark.parametrize(
    ("family", "beam_size"),
    [(family, 1) for family in OTHER_FAMILIES if family not in ONE_BY_ONE]
    + [(family, 3) for family in ("mt5", "moonshine", "git")],
)
def test_rows_of_a_batch_share_passes_and_equal_those_alone(family: str, beam_size: int) -> None:
    module = other_module(family)
    passes = []
    with Engine(device="cpu") as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = engine.wrap(module)
        sources = [source_of(family, seed) for seed in range(4)]
        encoded = [model.encode([source])[0] for source in sources]
        options = GenerationOptions(max_new_tokens=LENGTH, beam_size=beam_size)

        def request(source: Any) -> Request:
            return Request(source, (model.architecture.start_id,), options)

        engine.generate([request(encoded[0])])  # shows how the module keeps its cache
        head = module.get_output_embeddings() or module.text_decoder.get_output_embeddings()
        head.register_forward_hook(lambda *_: passes.append(1))
        alone = [engine.generate([request(each)])[0].tokens for each in encoded]
        one_by_one = len(passes)
        passes.clear()
        together = engine.generate([request(each) for each in model.encode(sources)])
    assert [result.tokens for result in together] == alone
    assert len(passes) < one_by_one / 2


def test_a_wrapped_model_drafts_with_an_encoder_of_its_own() -> None:
    module = other_module("speech2text")
    with Engine(device="cpu") as engine:
        model, draft_model = engine.wrap(module), engine.wrap(module)
        options = GenerationOptions(max_new_tokens=LENGTH)
        drafting = Drafting(model, draft_model)
        (encoded,) = drafting.encode([source_of("speech2text")])
        drafter = drafting.drafter_for(encoded, options)
        assert drafter is not None
        start = (model.architecture.start_id,)
        drafted = engine.generate([Request(encoded, start, options, drafter=drafter)])
        assert drafted[0].tokens == engine.generate([Request(encoded, start, options)])[0].tokens


def test_a_model_that_transformers_runs_is_not_compared_with_it(tmp_path: Path) -> None:
    other_module("speech2text").save_pretrained(tmp_path)
    with (
        pytest.warns(UserWarning, match="run by transformers"),
        pytest.raises(UnsupportedTask, match="run by transformers itself, so there is nothing"),
    ):
        compare_with_transformers(tmp_path)


def test_every_family_that_transformers_runs_is_compared() -> None:
    compared = {make().config.model_type for make in OTHER_FAMILIES.values()}
    assert {family.model_type for family in FAMILIES.values() if not family.architecture} < compared


def test_a_module_with_a_recurrent_state_is_refused() -> None:
    config = hf.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1)
    with Engine(device="cpu") as engine, pytest.raises(RequestError, match="recurrent state"):
        engine.wrap(hf.MambaForCausalLM(config))


@pytest.mark.parametrize("family", ["umt5", "fsmt", "speech2text", "bert2bert"])
def test_a_folder_falls_back_to_transformers_and_says_so(family: str, tmp_path: Path) -> None:
    module = other_module(family)
    with Engine(device="cpu") as engine:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.save_pretrained(tmp_path)
            expected = ours(engine, engine.wrap(module), family)
        with pytest.warns(UserWarning, match="it is run by transformers") as said:
            model = engine.load(tmp_path)
        assert len([w for w in said if "run by transformers" in str(w.message)]) == 1
        assert ours(engine, model, family) == expected
        assert engine.load(tmp_path) is model


def test_a_folder_of_the_cache_is_named_by_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "models--some--umt5-small" / "snapshots" / "0f0f"
    with Engine(device="cpu") as engine:
        other_module("umt5").save_pretrained(folder)
        with pytest.warns(UserWarning, match="^some/umt5-small is a UMT5For"):
            engine.load(folder)


def test_a_folder_of_a_family_that_generates_no_text_is_refused(tmp_path: Path) -> None:
    config = '{"model_type": "bert", "architectures": ["BertForMaskedLM"]}'
    (tmp_path / "config.json").write_text(config)
    with Engine(device="cpu") as engine, pytest.raises(CheckpointError, match="not supported"):
        engine.load(tmp_path)


@pytest.mark.parametrize("name", ["os", "Trainer", "__import__", "PreTrainedModel", "x.y"])
def test_only_model_classes_of_transformers_are_used(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "x", "architectures": ["{name}"]}}')
    with Engine(device="cpu") as engine, pytest.raises(CheckpointError, match="not supported"):
        engine.load(tmp_path)
