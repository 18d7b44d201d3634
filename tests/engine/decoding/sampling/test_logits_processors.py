"""The named processors: their distributions, and that the engine samples from the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from pipelines.engine import (
    Engine,
    GreedyProcessor,
    LoadedModel,
    LogitsProcessor,
    MinPProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    Request,
    TopAProcessor,
    TopKNucleusProcessor,
    TopKProcessor,
)
from pipelines.errors import OptionError
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import token_sources

PROCESSORS = [
    MultinomialProcessor(0.7),
    TopKProcessor(1.0, 3),
    NucleusProcessor(1.5, 0.6),
    TopKNucleusProcessor(0.8, 5, 0.9),
    MinPProcessor(1.2, 0.2),
    TopAProcessor(1.0, 0.3, 1.5),
]


@pytest.mark.parametrize("processor", PROCESSORS)
def test_draws_follow_the_probabilities(processor: LogitsProcessor) -> None:
    logits = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])
    expected = processor(logits)
    generator = torch.Generator().manual_seed(1)
    drawn = processor.sample(expected.expand(4000, 7), generator)[:, 0]
    counts = torch.bincount(drawn, minlength=7)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = (expected[possible] * 4000).numpy().astype("f8")
    assert chi_squared_p(counts[possible].numpy(), wanted) > 1e-3


@pytest.mark.parametrize("processor", [GreedyProcessor(), TopKProcessor(0.0, 4)])
def test_temperature_zero_is_greedy(processor: LogitsProcessor) -> None:
    logits = torch.tensor([[0.5, 2.0, -1.0], [3.0, 2.0, 1.0]])
    assert processor(logits).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert processor.sample(processor(logits)).tolist() == [[1], [0]]
    assert GreedyProcessor(temperature=2.0).options(1).temperature == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "processor", [TopKProcessor(1.0, 5), MinPProcessor(0.5, 0.3), TopAProcessor(1.0, 1.0, 1.04)]
)
def test_the_engine_draws_the_same(
    processor: LogitsProcessor, engine: Engine, marian: LoadedModel
) -> None:
    encoded, start = marian.encode(token_sources(marian, [6]))[0], marian.architecture.start_id
    expected = processor(marian.score(encoded, [start])[0])
    runs = 300
    results = engine.generate(
        [Request(encoded, (start,), processor.options(1, seed=seed)) for seed in range(runs)]
    )
    counts = Counter(result.tokens[0] for result in results)
    common = [int(i) for i in (expected * runs >= 5).nonzero()[:, 0]]
    seen = [counts[i] for i in common] + [runs - sum(counts[i] for i in common)]
    wanted = [float(expected[i]) * runs for i in common]
    wanted.append(max(runs - sum(wanted), 1e-9))
    if wanted[-1] < 1:
        assert seen.pop() <= 3
        wanted.pop()
    assert chi_squared_p(seen, wanted) > 1e-3


def test_best_of_returns_the_most_probable_sample(engine: Engine, marian: LoadedModel) -> None:
    """And each of them is drawn like any other sample."""
    encoded, start = marian.encode(token_sources(marian, [6]))[0], marian.architecture.start_id
    options = replace(TopKProcessor(1.0, 20).options(8, seed=5), best_of=6, n_best=6, logprobs=True)
    found = engine.generate([Request(encoded, (start,), options)])[0]
    means = [sum(h.logprobs) / len(h.tokens) for h in found.hypotheses]
    assert means == sorted(means, reverse=True)
    assert [h.score for h in found.hypotheses] == pytest.approx(means)
    assert found.tokens == found.hypotheses[0].tokens
    assert len({h.tokens for h in found.hypotheses}) > 1
    for hypothesis in found.hypotheses:
        scored = marian.score(encoded, (start, *hypothesis.tokens[:-1])).log_softmax(-1)
        chosen = scored[range(8), list(hypothesis.tokens)]
        assert list(hypothesis.logprobs) == pytest.approx(chosen.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TopKProcessor, {"top_k": 0}),
        (NucleusProcessor, {"top_p": 0.0}),
        (MinPProcessor, {"min_p": 2.0}),
        (TopAProcessor, {"top_a": 2.0}),
        (TopAProcessor, {"top_a_pow": 0.0}),
        (MultinomialProcessor, {"temperature": -1.0}),
    ],
)
def test_values_out_of_range_are_refused(
    kind: type[LogitsProcessor], wrong: dict[str, float]
) -> None:
    with pytest.raises(OptionError):
        kind(**wrong)
