"""A shortlist: its ids have the same logits as without it, others cannot be generated."""

from __future__ import annotations

import random

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request, SuppressTokens
from pipelines.errors import OptionError
from tests.engine.conftest import Folders, token_sources

MARIAN, WHISPER = "marian:opus-mt-en-de", "whisper:tiny"


def some_of(model: LoadedModel, share: float = 0.3) -> list[int]:
    """Ids of a model in random order, with its end-of-text ids."""
    ids = range(model.architecture.vocab_size)
    kept = random.Random(3).sample(ids, round(len(ids) * share))
    return [*{*kept, *model.architecture.eos_ids}]


@pytest.mark.slow
@pytest.mark.parametrize("compute_type", ["float32", "bfloat16", "float16", "int8"])
def test_its_logits_equal_those_of_the_whole_vocabulary(
    checkpoints: Folders, compute_type: str
) -> None:
    folder = checkpoints(MARIAN)
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        whole = engine.load(folder)
        kept = some_of(whole)
        short = engine.load(folder, kept)
        prompt, (source,) = [whole.architecture.start_id, 5, 77], token_sources(whole, [9])
        expected = whole.score(whole.encode([source])[0], prompt)
        found = short.score(short.encode([source])[0], prompt)
    torch.testing.assert_close(found[:, kept], expected[:, kept], rtol=1e-4, atol=1e-4)
    others = torch.ones(found.shape[1], dtype=torch.bool)
    others[kept] = False
    assert (found[:, others] == -torch.inf).all()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.8, "seed": 4}], ids=str)
def test_equals_suppression_of_all_other_ids(
    engine: Engine, marian: LoadedModel, changes: dict[str, object]
) -> None:
    kept = some_of(marian)
    others = tuple({*range(marian.architecture.vocab_size)} - {*kept})
    short = engine.load(marian.folder, kept)
    shared = {"max_new_tokens": 12, "eos_ids": marian.architecture.eos_ids, **changes}
    for source in token_sources(marian, [5, 12, 30]):
        results = [
            engine.generate([Request(model.encode([source])[0], (58_100,), options)])[0]
            for model, options in (
                (marian, GenerationOptions(**shared, logit_filters=(SuppressTokens(others),))),
                (short, GenerationOptions(**shared)),
            )
        ]
        assert results[0].tokens == results[1].tokens
        assert results[1].tokens
        assert {*results[1].tokens} <= {*kept}


def test_log_probabilities_of_beams_are_over_the_shortlist(
    engine: Engine, marian: LoadedModel
) -> None:
    """The softmax is over the shortlist only."""
    kept = some_of(marian)
    short = engine.load(marian.folder, kept)
    options = GenerationOptions(max_new_tokens=8, beam_size=4, n_best=2, logprobs=True)
    (encoded,) = short.encode(token_sources(marian, [12]))
    found = engine.generate([Request(encoded, (58_100,), options)])[0]
    assert {*found.tokens} <= {*kept}
    read = short.score(encoded, [58_100, *found.tokens[:-1]]).log_softmax(-1)
    expected = read[range(len(found.tokens)), list(found.tokens)]
    torch.testing.assert_close(torch.tensor(found.logprobs), expected, rtol=1e-4, atol=1e-4)


def test_an_audio_model_can_have_one(engine: Engine, whisper: LoadedModel) -> None:
    kept = some_of(whisper)
    short = engine.load(whisper.folder, kept)
    mel = torch.zeros(80, 2 * whisper.architecture.max_source_positions)
    options = GenerationOptions(max_new_tokens=5)
    request = Request(short.encode([mel])[0], (whisper.architecture.start_id,), options)
    assert {*engine.generate([request])[0].tokens} <= {*kept}


def test_models_with_equal_shortlists_are_shared(engine: Engine, marian: LoadedModel) -> None:
    kept = some_of(marian)
    short = engine.load(marian.folder, kept)
    assert engine.load(marian.folder, kept) is short
    assert engine.load(marian.folder, kept[::-1]) is short
    assert engine.load(marian.folder) is marian
    assert short is not marian


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ([0, 58_101], "58101"),
        ([0, -1], "-1"),
        ([5, 6], "must include an end-of-text id"),
        ([], "must include an end-of-text id"),
    ],
)
def test_invalid_ones_are_refused(
    engine: Engine, marian: LoadedModel, ids: list[int], why: str
) -> None:
    with pytest.raises(OptionError, match=why):
        engine.load(marian.folder, ids)
