"""Sampling follows the right distribution and depends on the seed only, not on the batch."""

from __future__ import annotations

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request
from pipelines.engine.decoding.sampling.distributions import (
    generator_for,
    sample_from,
    token_distribution,
)
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import token_sources

CPU = torch.device("cpu")
SETTINGS = [
    (1.0, 0, 1.0),
    (0.7, 0, 1.0),
    (1.0, 3, 1.0),
    (1.5, 0, 0.6),
    (0.8, 5, 0.9),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_draws_follow_the_distribution(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])
    expected = token_distribution(logits, temperature, top_k, top_p)
    generator = generator_for(1, CPU)
    counts = torch.zeros(7)
    for _ in range(4000):
        counts[sample_from(expected, generator)] += 1
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = (expected[possible] * 4000).numpy().astype("f8")
    assert chi_squared_p(counts[possible].numpy(), wanted) > 1e-3


@pytest.mark.slow
def test_a_seed_repeats_and_neighbors_do_not_matter(engine: Engine, marian: LoadedModel) -> None:
    pad = marian.architecture.pad_id
    encoded_sources = marian.encode(token_sources(marian, [6, 9, 12]))

    def options(seed: int) -> GenerationOptions:
        return GenerationOptions(max_new_tokens=15, temperature=1.0, top_k=20, seed=seed)

    alone = engine.generate([Request(encoded_sources[0], (pad,), options(5))])[0].tokens
    crowd = [Request(encoded, (pad,), options(5 + i)) for i, encoded in enumerate(encoded_sources)]
    assert engine.generate(crowd)[0].tokens == alone
    assert engine.generate([Request(encoded_sources[0], (pad,), options(6))])[0].tokens != alone


def test_temperature_zero_is_greedy_and_top_k_one_too(engine: Engine, marian: LoadedModel) -> None:
    pad = marian.architecture.pad_id
    encoded = marian.encode(token_sources(marian, [8]))[0]
    greedy = GenerationOptions(max_new_tokens=12, temperature=0.0)
    one = GenerationOptions(max_new_tokens=12, temperature=1.3, top_k=1, seed=0)
    results = engine.generate([Request(encoded, (pad,), o) for o in (greedy, one)])
    assert results[0].tokens == results[1].tokens
