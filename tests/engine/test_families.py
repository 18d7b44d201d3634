"""Every family on the native stack, from folders that transformers wrote, equals `generate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from pipelines.engine import Engine, GenerationOptions, NgramDrafter, Request
from tests.conftest import Exactness
from tests.engine.modules import _SEQ2SEQ, _T5, MODULES
from tests.engine.rounding import int8_step

pytestmark = pytest.mark.oracle

SOURCES = [[5, 17, 33, 8, 2], [9, 2], list(range(10, 50)), [40, 41, 42, 43, 40, 41, 42, 2]]
# No token ends a text: a random model would often stop at once.
ENDS = (7, 30)

FAMILIES: dict[str, Any] = {
    "bart": MODULES["bart"],
    "mbart": lambda: MBartForConditionalGeneration(
        MBartConfig(**_SEQ2SEQ, scale_embedding=True, forced_eos_token_id=None)
    ),
    "m2m100": lambda: M2M100ForConditionalGeneration(
        M2M100Config(**_SEQ2SEQ, scale_embedding=True)
    ),
    "t5": lambda: T5ForConditionalGeneration(
        # Other heads than d_model would make, and distances beyond the last bucket.
        T5Config(**_T5 | {"d_kv": 6, "num_decoder_layers": 1}, relative_attention_num_buckets=8,
                 relative_attention_max_distance=20)
    ),
    "flan-t5": MODULES["flan-t5"],
    "mt5": lambda: MT5ForConditionalGeneration(
        MT5Config(**_T5 | {"d_kv": 6, "num_decoder_layers": 1}, relative_attention_num_buckets=8,
                  relative_attention_max_distance=20)
    ),
    "pegasus": lambda: PegasusForConditionalGeneration(
        PegasusConfig(**_SEQ2SEQ, scale_embedding=True, forced_eos_token_id=None)
    ),
}  # fmt: skip


def made(kind: str) -> Any:
    """Random and not small, so that every bias, norm and position counts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = FAMILIES[kind]()
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue  # the sines of positions, which are computed here
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.2)
            elif name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.1)
            else:
                torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
        if hasattr(module, "final_logits_bias"):
            module.final_logits_bias = torch.randn_like(module.final_logits_bias) * 0.1
    return module.eval().requires_grad_(False)


@pytest.mark.parametrize("kind", FAMILIES)
def test_ids_equal_generate(
    kind: str, engine: Engine, exactness: Exactness, tmp_path: Path
) -> None:
    """Greedy, with beams, and drafted: all in one ragged batch, and logits of every position."""
    module = made(kind)
    module.save_pretrained(tmp_path)
    model = engine.load(tmp_path)
    exactness.models += 1
    start = model.architecture.start_id
    encoded_sources = model.encode(SOURCES)
    requests, theirs = [], []
    for source, encoded in zip(SOURCES, encoded_sources, strict=True):
        ids = torch.tensor([source])
        prompts: list[tuple[int, ...]] = [(start,), (start, 11, 12)]
        for prompt in prompts:
            target = torch.tensor([[*prompt, *range(20, 60)]])
            logits = module(ids, decoder_input_ids=target).logits[0]
            torch.testing.assert_close(
                model.score(encoded, target[0].tolist()), logits, atol=1e-4, rtol=1e-4
            )
            for beams in (1, 3):
                out = module.generate(
                    ids, attention_mask=torch.ones_like(ids),
                    decoder_input_ids=torch.tensor([prompt]), max_new_tokens=30, num_beams=beams,
                    do_sample=False, eos_token_id=list(ENDS), early_stopping=False,
                    length_penalty=1.0,
                )[0, len(prompt) :].tolist()  # fmt: skip
                options = GenerationOptions(max_new_tokens=30, eos_ids=ENDS, beam_size=beams)
                request = Request(encoded, prompt, options)
                requests += [request, replace(request, drafter=NgramDrafter())]
                theirs += [out, out]
    for ours, ids in zip(engine.generate(requests), theirs, strict=True):
        assert list(ours.tokens) == ids[: len(ours.tokens)]
        assert len(ours.tokens) in (len(ids), 30) or ours.tokens[-1] in ENDS
        exactness.prompts += 1
        exactness.tokens += len(ours.tokens)
    engine.unload(model)


def test_an_mt5_with_a_head_of_its_own(tmp_path: Path) -> None:
    """As in google's files, though the config of transformers ties it to the embedding."""
    made("mt5").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    head = torch.randn(120, 32, generator=torch.Generator().manual_seed(3)) * 0.2
    save_file(load_file(file) | {"lm_head.weight": head}, file, {"format": "pt"})
    module = MT5ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    target = [0, *range(20, 40)]
    with Engine(device="cpu", compute_type="float32", threads=1) as engine, torch.no_grad():
        model = engine.load(tmp_path)
        ours = model.score(model.encode([SOURCES[0]])[0], target)
        logits = module(torch.tensor([SOURCES[0]]), decoder_input_ids=torch.tensor([target])).logits
    torch.testing.assert_close(ours, logits[0], atol=1e-4, rtol=1e-4)


def _scores_equal(folder: Path, module: Any) -> int:
    """Compare the logits of a folder with those of its module. Returns the folder's start id."""
    target = [0, *range(20, 40)]
    with Engine(device="cpu", compute_type="float32", threads=1) as engine, torch.no_grad():
        model = engine.load(folder)
        ours = model.score(model.encode([SOURCES[0]])[0], target)
        logits = module(torch.tensor([SOURCES[0]]), decoder_input_ids=torch.tensor([target])).logits
    torch.testing.assert_close(ours, logits[0], atol=1e-4, rtol=1e-4)
    return model.architecture.start_id


@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_what_a_config_of_t5_leaves_out_is_as_in_transformers(kind: str, tmp_path: Path) -> None:
    made(kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8")) | {"decoder_start_token_id": None}
    for key in ("feed_forward_proj", "dense_act_fn", "is_gated_act"):
        del config[key]
    path.write_text(json.dumps(config), "utf-8")
    kind_of_module = MT5ForConditionalGeneration if kind == "mt5" else T5ForConditionalGeneration
    module = kind_of_module.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert _scores_equal(tmp_path, module) == config["pad_token_id"]


@pytest.mark.parametrize("kind", ["bart", "pegasus"])
@pytest.mark.parametrize("stored", ["all", "shared"])
def test_tables_of_a_model_without_ties(kind: str, stored: str, tmp_path: Path) -> None:
    """Those of encoder and decoder differ in files of transformers 5; those of transformers 4 have
    the shared one alone."""
    config = made(kind).config
    config.tie_word_embeddings = False
    module = type(made(kind))(config)
    tables = [module.model.shared, module.model.encoder.embed_tokens]
    tables += [module.model.decoder.embed_tokens, module.lm_head]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        for table in tables:
            torch.nn.init.normal_(table.weight, std=0.2)
    if stored == "shared":
        for table in tables[1:3]:
            table.weight.data.copy_(tables[0].weight)
    module.eval().save_pretrained(tmp_path)
    if stored == "shared":
        file = tmp_path / "model.safetensors"
        kept = {k: v for k, v in load_file(file).items() if "embed_tokens" not in k}
        save_file(kept, file, {"format": "pt"})
    _scores_equal(tmp_path, module)


@pytest.mark.parametrize("kind", ["mbart", "flan-t5", "mt5", "pegasus"])
def test_lower_precisions_come_close(kind: str, tmp_path: Path) -> None:
    module = made(kind)
    module.save_pretrained(tmp_path)
    target = [3, *range(20, 40)]
    ids = torch.tensor([SOURCES[0]])
    logits = module(ids, decoder_input_ids=torch.tensor([target])).logits[0]
    for compute_type in ("bfloat16", "int8"):
        with Engine(device="cpu", compute_type=compute_type, threads=1) as other:
            model = other.load(tmp_path)
            ours = model.score(model.encode([SOURCES[0]])[0], target)
            error = (ours - logits).norm() / logits.norm()
            assert error < 0.1 * (int8_step() if compute_type == "int8" else 1), compute_type
