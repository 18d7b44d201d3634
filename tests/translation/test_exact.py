"""Greedy ids against transformers' MarianTokenizer and MarianMTModel.generate, in float32."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.engine import Engine
from pipelines.translation import Translator
from pipelines.translation.decode import Attempt, SentenceDecoder, SentenceRequest
from pipelines.translation.generation_config import read_generation_defaults
from pipelines.translation.repetition import max_target_tokens
from pipelines.translation.tokenizers.marian import MarianTokenizer
from tests.engine.oracle import assert_same_choice, greedy, reference
from tests.translation.corpus import SENTENCES

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def demo_reference(demo_folder: Path) -> Any:
    return reference(demo_folder)


def _expect(
    translator: Translator, model: Any, tokenizer: Any, sentence: str, ours: tuple[int, ...]
) -> None:
    source = torch.tensor(tokenizer(sentence)["input_ids"])
    config = model.generation_config
    start = config.decoder_start_token_id
    new = max_target_tokens(len(source), translator.model.architecture.max_target_positions)
    theirs = greedy(model, source, [start], new, bad_words_ids=[[config.pad_token_id]])
    assert_same_choice(model, source, [start], ours, theirs)


def test_the_bundled_model(
    demo: Translator, demo_reference: Any, oracle_tokenizer: Callable[[Path], Any]
) -> None:
    """All in one continuous batch here, one at a time there."""
    tokenizer = oracle_tokenizer(demo.model.folder)
    for translation in demo.translate(SENTENCES):
        (sentence,) = translation.sentences
        assert not sentence.warnings
        _expect(demo, demo_reference, tokenizer, translation.source, sentence.tokens)
        expected = tokenizer.decode(sentence.tokens, skip_special_tokens=True)
        assert translation.text == expected


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("opus-mt-tc-big-en-fr", {"seed": 3}),
        ("opus-mt-en-mul", {"seed": 4, "weights": "bin-legacy"}),
    ],
)
def test_random_models_of_several_layouts(
    shape: str,
    options: dict[str, Any],
    marian_folder: Callable[..., Path],
    exact_engine: Engine,
    oracle_tokenizer: Callable[[Path], Any],
) -> None:
    folder = _write_talkative(marian_folder(shape, **options), 3.5)
    translator = Translator(folder, engine=exact_engine)
    model, tokenizer = reference(folder), oracle_tokenizer(folder)
    code = ">>fra<< " if translator.target_codes else ""
    compared = tokens = 0
    for translation in translator.translate([code + sentence for sentence in SENTENCES[:30]]):
        (sentence,) = translation.sentences
        if not sentence.warnings:
            _expect(translator, model, tokenizer, translation.source, sentence.tokens)
            compared, tokens = compared + 1, tokens + len(sentence.tokens)
    assert compared >= 15, "the guards took over too often to compare much"
    assert tokens > 150
    exact_engine.unload(translator.model)


def test_a_true_shape_opus_model(
    marian_folder: Callable[..., Path],
    exact_engine: Engine,
    oracle_tokenizer: Callable[[Path], Any],
) -> None:
    """58,101 tokens and 6 + 6 layers of 512. Random weights come to no end, so that what is
    compared is what the guards are shown: a first attempt, up to its loop or its length."""
    folder = marian_folder("opus-mt-en-de", small=False, seed=3)
    loaded, tokenizer = exact_engine.load(folder), MarianTokenizer(folder)
    defaults = read_generation_defaults(folder, loaded.architecture)
    decoder = SentenceDecoder(loaded, tokenizer, defaults)
    jobs = [SentenceRequest(text, source_ids=tokenizer.encode(text)) for text in SENTENCES[:6]]
    encoded_sources = loaded.encode([job.source_ids for job in jobs])
    running = list(map(decoder.submit, jobs, encoded_sources))
    attempts = [_all_of(decoder.first_attempt(sentence, None)) for sentence in running]
    start, pad = defaults.decoder_start_id, loaded.architecture.pad_id
    exact_engine.unload(loaded)  # the weights of one program at a time: the memory of a worker
    del loaded, decoder, encoded_sources, running
    model, oracle = reference(folder), oracle_tokenizer(folder)
    compared = 0
    for job, attempt in zip(jobs, attempts, strict=True):
        source = torch.tensor(oracle(job.source)["input_ids"])
        theirs = greedy(model, source, [start], len(attempt.tokens), bad_words_ids=[[pad]])
        assert_same_choice(model, source, [start], attempt.tokens, theirs)
        compared += len(theirs)
    assert compared > 60


def _all_of(steps: Generator[str, None, Attempt]) -> Attempt:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            attempt: Attempt = end.value
            return attempt


def _write_talkative(folder: Path, eos_bias: float) -> Path:
    """Random weights hardly ever end a sentence: make the eos likelier."""
    path = folder / "pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    state["final_logits_bias"][0, MarianTokenizer(folder).eos_id] += eos_bias
    torch.save(state, path)
    return folder
