"""float32 ids equal transformers' `generate`, on every layout, alone and in ragged batches."""

from __future__ import annotations

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, MinNewTokens, Request, Suppress
from pipelines.models import bundled_folder
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.oracle import assert_same_choice, greedy, reference

WHISPERS = ["whisper:tiny!", "whisper:tiny.en", "whisper:large-v3", "whisper:turbo", "whisper:distil"]
MARIANS = ["marian:opus-mt-en-de!", "marian:opus-mt-en-de", "marian:opus-mt-tc-big-en-fr", "marian:separate-vocabs"]  # fmt: skip


@pytest.mark.parametrize("spec", WHISPERS)
def test_whisper_ids_equal_generate(spec: str, checkpoints: Folders, engine: Engine) -> None:
    folder = checkpoints(spec)
    model, oracle = engine.load(folder), reference(folder)
    start, eos = model.architecture.start_id, model.architecture.eos_ids
    prompts = [(start,), (start, start + 1, start + 3), (eos[0], 11, 12, 13, start, start + 2)]
    sources = [mel_source(model, seed) for seed in range(2)]
    memories = [model.encode([source])[0] for source in sources]
    options = GenerationOptions(max_new_tokens=24, eos_ids=eos, rules=(Suppress((50, 60)),))
    pairs = [(i, prompt) for i in range(2) for prompt in prompts]
    together = engine.generate([Request(memories[i], prompt, options) for i, prompt in pairs])
    for (i, prompt), ours in zip(pairs, together, strict=True):
        theirs = greedy(oracle, sources[i], prompt, 24, suppress_tokens=[50, 60])
        assert_same_choice(oracle, sources[i], prompt, ours.tokens, theirs)
        alone = engine.generate([Request(memories[i], prompt, options)])[0]
        assert_same_choice(oracle, sources[i], prompt, alone.tokens, theirs)
    engine.unload(model)


@pytest.mark.parametrize("spec", MARIANS)
def test_marian_ids_equal_generate(spec: str, checkpoints: Folders, engine: Engine) -> None:
    folder = checkpoints(spec)
    model, oracle = engine.load(folder), reference(folder)
    pad, eos = model.architecture.pad_id, model.architecture.eos_ids
    sources = token_sources(model, [1, 2, 5, 9, 17, 33])
    rules = (Suppress((pad,)), MinNewTokens(20, eos))
    options = GenerationOptions(max_new_tokens=30, eos_ids=eos, rules=rules)
    # One pass over all, so that padding is at work too.
    memories = model.encode(sources)
    together = engine.generate([Request(memory, (pad,), options) for memory in memories])
    for source, ours in zip(sources, together, strict=True):
        ids = torch.tensor(source)
        theirs = greedy(oracle, ids, [pad], 30, bad_words_ids=[[pad]], min_new_tokens=20)
        assert_same_choice(oracle, ids, [pad], ours.tokens, theirs)
        memory = model.encode([source])[0]
        alone = engine.generate([Request(memory, (pad,), options)])[0]
        assert_same_choice(oracle, ids, [pad], alone.tokens, theirs)
    engine.unload(model)


def test_bundled_translator_equals_generate(engine: Engine) -> None:
    folder = bundled_folder("demo-en-de")
    model, oracle = engine.load(folder), reference(folder)
    pad, eos = model.architecture.pad_id, model.architecture.eos_ids
    options = GenerationOptions(max_new_tokens=40, eos_ids=eos, rules=(Suppress((pad,)),))
    sources = token_sources(model, list(range(2, 42)))
    memories = model.encode(sources)
    for source, ours in zip(
        sources, engine.generate([Request(m, (pad,), options) for m in memories]), strict=True
    ):
        ids = torch.tensor(source)
        theirs = greedy(oracle, ids, [pad], 40, bad_words_ids=[[pad]])
        assert_same_choice(oracle, ids, [pad], ours.tokens, theirs)


def test_bundled_recogniser_equals_generate(engine: Engine) -> None:
    folder = bundled_folder("demo")
    model, oracle = engine.load(folder), reference(folder)
    start, eos = model.architecture.start_id, model.architecture.eos_ids
    options = GenerationOptions(max_new_tokens=40, eos_ids=eos)
    for seed in range(5):
        source = mel_source(model, seed)
        memory = model.encode([source])[0]
        ours = engine.generate([Request(memory, (start,), options)])[0]
        theirs = greedy(oracle, source, [start], 40)
        assert_same_choice(oracle, source, [start], ours.tokens, theirs)
