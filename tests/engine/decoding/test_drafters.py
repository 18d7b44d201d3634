"""A request's draft makes the output come sooner and does not change it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.engine import (
    Engine,
    FinishReason,
    GenerationOptions,
    LoadedModel,
    LogitFilter,
    NoRepeatNgram,
    Request,
    Result,
    SuppressTokens,
)
from pipelines.errors import RequestError
from tests.engine.conftest import mel_source, token_sources

pytestmark = pytest.mark.slow

LENGTH = 24


@pytest.fixture(scope="module", params=["marian", "whisper"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    found: LoadedModel = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def requests(model: LoadedModel) -> list[Request]:
    """Greedy, filtered, sampled, and one that ends at an eos, each on its own source."""
    eos, start = model.architecture.eos_ids, model.architecture.start_id
    if model.architecture.source == "tokens":
        encoded_sources = model.encode(token_sources(model, [3, 11, 6, 17]))
    else:
        encoded_sources = [model.encode([mel_source(model, seed)])[0] for seed in range(4)]
    logit_filters: tuple[LogitFilter, ...] = (SuppressTokens((5, 9)), NoRepeatNgram(2))
    plain = GenerationOptions(max_new_tokens=LENGTH, eos_ids=eos, logprobs=True)
    options = [
        plain,
        replace(plain, logit_filters=logit_filters),
        replace(plain, temperature=0.8, top_k=40, seed=7),
        replace(plain, max_new_tokens=9, logprobs=False),
    ]
    return [
        Request(encoded, (start, *range(20, 20 + i)), o, token_probs=((0, 30), (i, 31)))
        for i, (encoded, o) in enumerate(zip(encoded_sources, options, strict=True))
    ]


@pytest.fixture(scope="module")
def plain(engine: Engine, requests: list[Request]) -> list[Result]:
    """The results without drafts."""
    return engine.generate(requests)


@given(data=st.data())
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_draft_gives_the_same(
    engine: Engine, requests: list[Request], plain: list[Result], data: st.DataObject
) -> None:
    drafted, right = [], []
    for request, result in zip(requests, plain, strict=True):
        kept = data.draw(st.integers(0, len(result.tokens)))
        wrong = data.draw(st.lists(st.integers(0, 50), max_size=5))
        drafted.append(replace(request, draft=(*result.tokens[:kept], *wrong)))
        right.append(kept)
    again = engine.generate(drafted)
    for before, after, kept in zip(plain, again, right, strict=True):
        assert after.tokens == before.tokens
        assert after.reason == before.reason
        assert after.accepted >= kept
        assert after.logprobs == pytest.approx(before.logprobs, abs=1e-4)
        assert after.token_probs == pytest.approx(before.token_probs, abs=1e-5)


def test_a_correct_draft_takes_one_pass(engine: Engine, requests: list[Request]) -> None:
    request = requests[0]
    whole = engine.generate([request])[0]
    stream = engine.stream(replace(request, draft=whole.tokens))
    assert [len(event.tokens) for event in stream] == [1] * len(whole.tokens)
    assert stream.result().accepted == len(whole.tokens)
    if whole.reason is FinishReason.LENGTH:
        longer = replace(request, draft=(*whole.tokens, 4, 4, 4))
        assert engine.generate([longer])[0].tokens == whole.tokens


def test_a_draft_up_to_the_last_position(
    engine: Engine, model: LoadedModel, requests: list[Request]
) -> None:
    options = GenerationOptions(max_new_tokens=10_000)
    request = replace(requests[0], options=options)
    whole = engine.generate([request])[0]
    again = engine.generate([replace(request, draft=(*whole.tokens, 4, 4))])[0]
    assert again.tokens == whole.tokens
    assert len(whole.tokens) == model.architecture.max_target_positions
    assert again.accepted == len(whole.tokens) - 1, "the last one is chosen, but never read"


def test_a_draft_with_ids_outside_the_vocabulary_is_refused(
    engine: Engine, model: LoadedModel, requests: list[Request]
) -> None:
    request = requests[0]
    with pytest.raises(RequestError, match="a draft"):
        engine.stream(replace(request, draft=(model.architecture.vocab_size,)))
