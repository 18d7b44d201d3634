"""Contrastive decoding equals x-transformers' formula, in every way of decoding."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pipelines.engine import (
    ContrastiveFilter,
    Engine,
    GenerationOptions,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    Request,
    SuppressTokens,
)
from pipelines.errors import OptionError, RequestError
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import token_sources
from tests.fixtures.checkpoints import write_marian

ALPHA, BETA, LENGTH = 0.05, 0.8, 12


@pytest.fixture(scope="module")
def amateur(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return engine.load(write_marian(tmp_path_factory.mktemp("amateur") / "m", seed=1, layers=1))


def contrast(expert: Tensor, amateur: Tensor) -> Tensor:
    """x-transformers' contrastive_decode_fn."""
    cutoff = math.log(ALPHA) + expert.amax(-1, keepdim=True)
    diffs = (1 + BETA) * expert - BETA * amateur
    return diffs.masked_fill(expert < cutoff, -torch.inf)


def expected_logits(
    expert: LoadedModel, amateur: LoadedModel, source: list[int], tokens: list[int]
) -> Tensor:
    both = [model.score(model.encode([source])[0], tokens)[-1] for model in (expert, amateur)]
    return contrast(*both)


@pytest.mark.slow
def test_greedy_with_and_without_drafts(
    engine: Engine, marian: LoadedModel, amateur: LoadedModel
) -> None:
    source, start = token_sources(marian, [7])[0], marian.architecture.start_id
    tokens = [start]
    for _ in range(LENGTH):
        tokens.append(int(expected_logits(marian, amateur, source, tokens).argmax()))
    encoded, other = marian.encode([source])[0], amateur.encode([source])[0]
    filters = (ContrastiveFilter(amateur, other, ALPHA, BETA),)
    options = GenerationOptions(max_new_tokens=LENGTH, logit_filters=filters)
    request = Request(encoded, (start,), options)
    alone = engine.generate([replace(request, options=replace(options, logit_filters=()))])[0]
    assert list(alone.tokens) != tokens[1:], "the amateur changes nothing here"
    wrong = (*tokens[1:4], 7, 7)
    for way in (
        request,
        replace(request, draft=wrong),
        replace(request, drafter=NgramDrafter()),
        replace(request, drafter=ModelDrafter(amateur, other)),
    ):
        assert list(engine.generate([way])[0].tokens) == tokens[1:]
    assert list(marian.uncached().stream(request).result().tokens) == tokens[1:]


@pytest.mark.slow
def test_samples_follow_the_contrast(
    engine: Engine, marian: LoadedModel, amateur: LoadedModel
) -> None:
    source, start = token_sources(marian, [7])[0], marian.architecture.start_id
    probs = expected_logits(marian, amateur, source, [start]).div(0.5).softmax(-1)
    encoded, other = marian.encode([source])[0], amateur.encode([source])[0]
    contrastive, runs = ContrastiveFilter(amateur, other, ALPHA, BETA), 120
    options = GenerationOptions(
        max_new_tokens=2, temperature=0.5, logit_filters=(contrastive, SuppressTokens(()))
    )
    for drafter in (None, ModelDrafter(amateur, other)):
        requests = [
            Request(encoded, (start,), replace(options, seed=seed), drafter=drafter)
            for seed in range(runs)
        ]
        counts = Counter(result.tokens[0] for result in engine.generate(requests))
        assert all(probs[token] > 0 for token in counts)
        common = [int(i) for i in (probs * runs >= 5).nonzero()[:, 0]]
        seen = [counts[i] for i in common] + [runs - sum(counts[i] for i in common)]
        wanted = [float(probs[i]) * runs for i in common]
        wanted.append(max(runs - sum(wanted), 1e-9))
        if wanted[-1] < 1:
            assert seen.pop() <= 3
            wanted.pop()
        assert chi_squared_p(seen, wanted) > 1e-4


def test_beams(engine: Engine, marian: LoadedModel, amateur: LoadedModel) -> None:
    """Each beam has an amateur's cache of its own: beams of beta 0 are the expert's."""
    source, start = token_sources(marian, [7])[0], marian.architecture.start_id
    encoded, other = marian.encode([source])[0], amateur.encode([source])[0]
    options = GenerationOptions(max_new_tokens=6, beam_size=2)
    plain = engine.generate([Request(encoded, (start,), options)])[0]
    same = replace(options, logit_filters=(ContrastiveFilter(amateur, other, 1e-9, 0.0),))
    assert engine.generate([Request(encoded, (start,), same)])[0].tokens == plain.tokens


def test_what_fits_not_is_refused(
    engine: Engine, marian: LoadedModel, whisper: LoadedModel, amateur: LoadedModel
) -> None:
    source = token_sources(marian, [7])[0]
    (other,) = amateur.encode([source])
    for wrong in ({"alpha": 0.0}, {"alpha": 2.0}, {"beta": -1.0}):
        with pytest.raises(OptionError):
            ContrastiveFilter(amateur, other, **wrong)
    with pytest.raises(RequestError, match="another model"):
        ContrastiveFilter(whisper, other)
    with pytest.raises(RequestError, match="must be the same"):
        ContrastiveFilter(amateur, other).bind((0,), 7, torch.device("cpu"))
