"""The plain functions, on transformers modules in memory and on models of the engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from pipelines.engine import (
    DebugEvent,
    Engine,
    GenerationOptions,
    GreedyProcessor,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    NgramStore,
    Request,
    TopKProcessor,
    autoregressive_generate,
    autoregressive_generate_encoder_decoder,
    speculative_generate,
    speculative_generate_encoder_decoder,
)
from pipelines.errors import OptionError, RequestError
from tests.conftest import Exactness
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import token_sources
from tests.engine.modules import MODULES, VISION, made

pytestmark = pytest.mark.oracle

CAUSAL = ("gpt2", "llama")
SEQ2SEQ = tuple(kind for kind in MODULES if kind not in CAUSAL)
INPUTS = [[5, 17, 33, 8, 2], [9, 2], [40, 41, 42, 43, 40, 41, 42, 43, 40, 41, 2]]
NEVER = (111,)  # an id that the modules rarely generate, so that outputs reach their full length


def expected(module: Any, inputs: list[int], new: int, ends: tuple[int, ...]) -> list[int]:
    """The output of the module's own generate, in the format of the functions."""
    out = module.generate(
        torch.tensor([inputs]),
        attention_mask=torch.ones(1, len(inputs), dtype=torch.long),
        max_new_tokens=new,
        do_sample=False,
        num_beams=1,
        eos_token_id=list(ends),
    )[0].tolist()
    return out if module.config.is_encoder_decoder else out[len(inputs) :]


def generated(module: Any, inputs: list[int], **options: Any) -> list[int]:
    both = module.config.is_encoder_decoder
    generate = autoregressive_generate_encoder_decoder if both else autoregressive_generate
    return generate(inputs, module, **options)


@pytest.mark.parametrize("kind", MODULES)
def test_ids_equal_generate(kind: str, exactness: Exactness) -> None:
    module = made(kind)
    exactness.models += 1
    for inputs in INPUTS:
        whole = expected(module, inputs, 20, NEVER)
        for ends in (NEVER, (whole[4], 119)):
            for new in (1, 20):
                theirs = expected(module, inputs, new, ends)
                for use_cache in (True, False):
                    ours = generated(
                        module, inputs, max_gen_len=new, eos_tokens_id=ends, use_cache=use_cache
                    )
                    assert ours == theirs
                exactness.prompts += 2
                exactness.tokens += 2 * len(theirs)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_a_module_keeps_its_tensors_and_dtype(kind: str) -> None:
    module = made(kind).to(torch.bfloat16)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pointers = [p.data_ptr() for p in module.parameters()]
    assert len(generated(module, INPUTS[0], max_gen_len=8, eos_tokens_id=NEVER)) >= 8
    assert [p.data_ptr() for p in module.parameters()] == pointers
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_an_engine_model_gives_the_same(engine: Engine, marian: LoadedModel) -> None:
    inputs, start = token_sources(marian, [7])[0], marian.architecture.start_id
    options = GenerationOptions(max_new_tokens=12)
    plain = engine.generate([Request(marian.encode([inputs])[0], (start,), options)])[0].tokens
    for use_cache in (True, False):
        ours = autoregressive_generate_encoder_decoder(
            inputs, marian, 12, eos_tokens_id=[], use_cache=use_cache
        )
        assert ours == [start, *plain]
    ids, rate = speculative_generate_encoder_decoder(
        inputs, marian, marian, max_gen_len=12, eos_tokens_id=[], use_cache=True
    )
    assert (ids, rate) == ([start, *plain], 1.0)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_speculation_equals_generate(
    kind: str, use_cache: bool, exactness: Exactness
) -> None:
    target, both = made(kind), kind in SEQ2SEQ
    generate = speculative_generate_encoder_decoder if both else speculative_generate
    store = NgramStore()
    outputs = [expected(target, inputs, 20, NEVER) for inputs in INPUTS]
    for drafter, least in ((target, 1.0), (made(kind, seed=1), 0.0), (store, 0.0),
                           (NgramDrafter(adaptive=True), 0.0)):  # fmt: skip
        for inputs, theirs in zip(INPUTS, outputs, strict=True):
            ids, rate = generate(
                inputs, drafter, target, gamma=3, max_gen_len=20, eos_tokens_id=NEVER,
                use_cache=use_cache,
            )  # fmt: skip
            assert ids == theirs
            assert least <= rate <= 1.0
            exactness.prompts += 1
            exactness.tokens += len(ids)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_sampled_speculation_keeps_the_distribution(kind: str) -> None:
    target, drafter, both = made(kind), made(kind, seed=1), kind in SEQ2SEQ
    processor = TopKProcessor(3.0, 5)
    counts: Counter[tuple[int, ...]] = Counter()
    runs = 250
    for _ in range(runs):
        if both:
            ids, _ = speculative_generate_encoder_decoder(
                INPUTS[0], drafter, target, None, 2, processor, 2, NEVER, use_cache=True
            )
            counts[tuple(ids[1:])] += 1
        else:
            ids, _ = speculative_generate(
                INPUTS[0], drafter, target, None, 2, processor, 2, NEVER, use_cache=True
            )
            counts[tuple(ids)] += 1
    wanted = {}
    for first, chance in _token_probabilities(target, processor, both, []).items():
        for second, after in _token_probabilities(target, processor, both, [first]).items():
            wanted[first, second] = chance * after * runs
    assert set(counts) <= set(wanted)
    common = [pair for pair, number in wanted.items() if number >= 5]
    seen = [counts[pair] for pair in common] + [runs - sum(counts[pair] for pair in common)]
    sizes = [wanted[pair] for pair in common] + [runs - sum(wanted[pair] for pair in common)]
    assert chi_squared_p(seen, sizes) > 1e-4


def _token_probabilities(
    module: Any, processor: TopKProcessor, both: bool, so_far: list[int]
) -> dict[int, float]:
    if both:
        start = module.config.decoder_start_token_id
        out = module(torch.tensor([INPUTS[0]]), decoder_input_ids=torch.tensor([[start, *so_far]]))
    else:
        out = module(torch.tensor([[*INPUTS[0], *so_far]]))
    found = processor(out.logits[0, -1])
    return {int(i): float(found[i]) for i in found.nonzero()[:, 0]}


def test_no_token_and_one_token() -> None:
    module = made("t5")
    for use_cache in (True, False):
        assert generated(module, INPUTS[0], max_gen_len=0, use_cache=use_cache) == [0]
        assert len(generated(module, INPUTS[0], max_gen_len=1, use_cache=use_cache)) == 2
    assert generated(made("gpt2"), INPUTS[0], max_gen_len=0) == []


def test_debug_reports_accepted_and_rejected_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    target, heard = made("t5"), list[DebugEvent]()
    plain = generated(target, INPUTS[0], max_gen_len=9, eos_tokens_id=NEVER)
    generated(target, INPUTS[0], max_gen_len=9, eos_tokens_id=NEVER, debug=heard.append)
    assert [t for event in heard for t in event.tokens] == plain[1:]
    assert {event.kind for event in heard} == {"token"}
    for drafter in (target, made("t5", seed=1)):
        heard.clear()
        ids, rate = speculative_generate_encoder_decoder(
            INPUTS[0], drafter, target, gamma=3, max_gen_len=9, eos_tokens_id=NEVER, use_cache=True,
            debug=heard.append,
        )  # fmt: skip
        kept = [t for e in heard if e.kind != "reject" for t in e.tokens]
        assert kept == ids[1:] == plain[1:]
        accepted = sum(len(e.tokens) for e in heard if e.kind == "accept")
        refused = sum(len(e.tokens) for e in heard if e.kind == "reject")
        assert rate == pytest.approx(accepted / (accepted + refused))
        assert (drafter is target) == (refused == 0)
    assert capsys.readouterr() == ("", "")
    generated(target, INPUTS[0], max_gen_len=2, eos_tokens_id=NEVER, debug=True)
    assert "\x1b[" in capsys.readouterr().err


def test_invalid_arguments_are_refused(whisper: LoadedModel, marian: LoadedModel) -> None:
    causal, both = made("gpt2"), made("t5")
    with pytest.raises(RequestError, match="encoder-decoder"):
        autoregressive_generate_encoder_decoder(INPUTS[0], causal)
    with pytest.raises(RequestError, match="decoder-only"):
        autoregressive_generate(INPUTS[0], both)
    with pytest.raises(RequestError, match="reads ids"):
        autoregressive_generate_encoder_decoder(INPUTS[0], whisper)
    with pytest.raises(RequestError, match="vocabulary"):
        autoregressive_generate([500], causal)
    with pytest.raises(RequestError, match="start token"):
        autoregressive_generate([], causal)
    with pytest.raises(OptionError, match="max_new_tokens"):
        autoregressive_generate_encoder_decoder(INPUTS[0], both, max_gen_len=-1)
    with pytest.raises(RequestError, match="vocabulary"):
        speculative_generate_encoder_decoder(INPUTS[0], marian, both)


def test_a_decoder_only_model_encodes_nothing(engine: Engine) -> None:
    with pytest.raises(RequestError, match="decoder-only: it has nothing to encode"):
        engine.wrap(made("gpt2")).encode([INPUTS[0]])


@pytest.mark.parametrize("kind", ["bart", "gpt2"])
def test_beams_on_a_module_equal_generate(kind: str, engine: Engine, exactness: Exactness) -> None:
    """Wrapped modules, in one batch with greedy and sampled requests."""
    module = made(kind)
    model, both = engine.wrap(module), kind in SEQ2SEQ
    requests, theirs = [], []
    for inputs in INPUTS:
        encoded = model.encode([inputs])[0] if both else model.null_source()
        prompt = (model.architecture.start_id,) if both else tuple(inputs)
        plain = GenerationOptions(max_new_tokens=10, eos_ids=(7, 30))
        for beams in (2, 4):
            options = GenerationOptions(max_new_tokens=10, eos_ids=(7, 30), beam_size=beams)
            requests += [Request(encoded, prompt, options), Request(encoded, prompt, plain)]
            out = module.generate(
                torch.tensor([inputs]), attention_mask=torch.ones(1, len(inputs), dtype=torch.long),
                max_new_tokens=10, num_beams=beams, do_sample=False, eos_token_id=[7, 30],
                early_stopping=False, length_penalty=1.0,
            )[0]  # fmt: skip
            theirs.append(out[len(prompt) :].tolist())
    results = engine.generate(requests)
    for ours, ids in zip(results[::2], theirs, strict=True):
        assert list(ours.tokens) == ids[: len(ours.tokens)]
        exactness.prompts += 1
        exactness.tokens += len(ours.tokens)
    alone = [engine.generate([request])[0].tokens for request in requests]
    assert [result.tokens for result in results] == alone


@pytest.mark.parametrize("kind", VISION)
def test_image_to_text_models_equal_generate(
    kind: str, engine: Engine, exactness: Exactness
) -> None:
    """An OCR and a captioning model of true widths: greedily, with beams, and drafted."""
    module = made(kind)
    exactness.models += 1
    model = engine.wrap(module)
    size = module.config.encoder.image_size
    pictures = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    start = model.architecture.start_id
    encoded_sources = model.encode(list(pictures))
    drafted = engine.wrap(module)
    drafts = drafted.encode(list(pictures))
    for picture, encoded, draft in zip(pictures, encoded_sources, drafts, strict=True):
        for beams in (1, 3):
            options = GenerationOptions(max_new_tokens=8, eos_ids=(3,), beam_size=beams)
            ours = engine.generate([Request(encoded, (start,), options)])[0].tokens
            theirs = module.generate(
                picture[None], max_new_tokens=8, num_beams=beams, do_sample=False,
                early_stopping=False, length_penalty=1.0, eos_token_id=[3],
            )[0, 1:].tolist()  # fmt: skip
            assert list(ours) == theirs[: len(ours)]
            exactness.prompts += 1
            exactness.tokens += len(ours)
            if beams == 1:
                request = Request(encoded, (start,), options, drafter=ModelDrafter(drafted, draft))
                result = engine.generate([request])[0]
                assert result.tokens == ours
                assert result.accepted == result.drafted > 0


def test_the_default_processor_is_greedy() -> None:
    module = made("llama")
    assert generated(module, INPUTS[0], logits_processor=GreedyProcessor(), max_gen_len=5) == (
        generated(module, INPUTS[0], max_gen_len=5)
    )
