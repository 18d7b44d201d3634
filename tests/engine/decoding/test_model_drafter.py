"""Requests with the same draft model share its passes; their outputs do not change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.engine import (
    Engine,
    FinishReason,
    GenerationOptions,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    NoRepeatNgram,
    Request,
    Result,
    Stream,
    SuppressTokens,
)
from pipelines.errors import EngineError
from tests.engine.conftest import mel_source, token_sources
from tests.engine.modules import made
from tests.fixtures.checkpoints import write_marian, write_whisper

pytestmark = pytest.mark.slow

LENGTH = 16


@pytest.fixture(scope="module", params=["marian", "whisper", "gpt2"])
def pair(
    request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LoadedModel, LoadedModel]]:
    """A model, and another of the same vocabulary that sometimes agrees with it."""
    folder = tmp_path_factory.mktemp("small") / request.param
    if request.param == "gpt2":
        # The draft model has the same weights with noise.
        module, other = made("gpt2"), made("gpt2")
        for parameter in other.parameters():
            parameter += 0.02 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(1)
            )
        yield engine.wrap(module), engine.wrap(other)
        return
    model: LoadedModel = request.getfixturevalue(request.param)
    if request.param == "marian":
        small = write_marian(folder, layers=1, d_model=32, heads=2, ffn=64, seed=3)
    else:
        small = write_whisper(folder, decoder_layers=1, dtype="float32")
    yield model, engine.load(small)


@pytest.fixture(scope="module")
def requests(pair: tuple[LoadedModel, LoadedModel]) -> list[Request]:
    """Greedy, filtered and sampled requests in turn, with prompts of several lengths."""
    model, small = pair
    start = model.architecture.start_id
    plain = GenerationOptions(max_new_tokens=LENGTH)
    kinds = [
        plain,
        replace(plain, logit_filters=(SuppressTokens((5, 9)), NoRepeatNgram(2))),
        replace(plain, temperature=0.9, top_k=20, seed=11),
        replace(plain, max_new_tokens=7, temperature=1.2, top_p=0.9, seed=5),
    ]
    found = []
    for index in range(8):
        if model.architecture.source == "none":
            encoded, draft = model.null_source(), small.null_source()
        elif model.architecture.source == "tokens":
            source = token_sources(model, [3 + 5 * index], index)
            encoded, draft = model.encode(source)[0], small.encode(source)[0]
        else:
            sound = mel_source(model, index % 3)
            encoded, draft = model.encode([sound])[0], small.encode([sound])[0]
        drafter = ModelDrafter(small, draft, gamma=2 + index % 3, adaptive=index % 2 == 1)
        prompt = (start, *range(20, 20 + (0, 1, 5)[index % 3]))
        found.append(Request(encoded, prompt, kinds[index % 4], drafter=drafter))
    return found


def alone(engine: Engine, requests: list[Request]) -> list[Result]:
    return [engine.generate([request])[0] for request in requests]


@pytest.fixture(scope="module")
def expected(engine: Engine, requests: list[Request]) -> list[Result]:
    """The results of the requests, each run alone."""
    drafted = alone(engine, requests)
    plain = alone(engine, [replace(request, drafter=None) for request in requests])
    for request, before, after in zip(requests, plain, drafted, strict=True):
        assert after.tokens == before.tokens or request.options.temperature
    return drafted


@given(data=st.data())
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_order_of_joining_and_leaving(
    engine: Engine,
    pair: tuple[LoadedModel, LoadedModel],
    requests: list[Request],
    expected: list[Result],
    data: st.DataObject,
) -> None:
    """Requests that join, are cancelled, time out or end do not change the others: these
    give the same as alone, sampled ones too, and greedy ones the same as without a drafter."""
    order = data.draw(st.permutations(range(len(requests))))
    gone = data.draw(st.sets(st.integers(0, len(requests) - 1), max_size=3))
    streams: dict[int, Stream] = {}
    for index in order:
        streams[index] = engine.stream(requests[index])
        for _ in range(data.draw(st.integers(0, 2))):
            next(streams[data.draw(st.sampled_from(sorted(streams)))], None)
    for index in gone:
        if index % 2:
            streams[index].cancel()
        else:
            streams[index]._state._deadline = 0.0
    for index, stream in streams.items():
        result, wanted = stream.result(), expected[index]
        if index in gone and result.reason is not FinishReason.LENGTH:
            assert result.tokens == wanted.tokens[: len(result.tokens)]
        else:
            assert result.tokens == wanted.tokens
            assert (result.accepted, result.drafted) == (wanted.accepted, wanted.drafted)
    assert not pair[0]._batch._speculation._batches, "the cache slots of ended requests are freed"


def test_one_draft_pass_for_all_requests(
    engine: Engine,
    pair: tuple[LoadedModel, LoadedModel],
    requests: list[Request],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight requests take as many passes of the draft model as one."""
    small, passes = pair[1], 0
    decode = small.backend.decode

    def counted(*args: object) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return decode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(small.backend, "decode", counted)
    request = requests[0]
    (one,) = engine.generate([request])
    needed, passes = passes, 0
    results = engine.generate([request] * 8)
    assert passes == needed
    assert [result.tokens for result in results] == [one.tokens] * 8


class FailsForDrafter:
    """A logit filter that works for the model and raises for its draft model."""

    def __init__(self, bad: bool) -> None:
        self.bad, self.binds = bad, 0

    def bind(self, prompt: object, vocab_size: int, device: object) -> FailsForDrafter:
        self.binds += 1
        return self

    def __call__(self, logits: torch.Tensor, generated: object) -> None:
        if self.bad and self.binds > 2:
            raise ZeroDivisionError("oops")


def test_errors_fail_only_the_requests_concerned(
    engine: Engine,
    pair: tuple[LoadedModel, LoadedModel],
    requests: list[Request],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A filter fails its own request; a draft model fails those that it drafts for."""
    good = requests[1]
    (expected,) = engine.generate([good])
    options = replace(requests[0].options, logit_filters=(FailsForDrafter(bad=True),))
    bad = engine.stream(replace(requests[0], options=options))
    neighbor = engine.stream(good)
    assert neighbor.result().tokens == expected.tokens
    with pytest.raises(EngineError, match="oops"):
        bad.result()

    def broken(*args: object) -> torch.Tensor:
        raise RuntimeError("no drafts today")

    ngrams = replace(good, drafter=NgramDrafter())
    streams = [engine.stream(request) for request in (requests[0], ngrams, requests[4])]
    with monkeypatch.context() as patch:
        patch.setattr(pair[1].backend, "decode", broken)
        assert streams[1].result().tokens == expected.tokens
    for stream in (streams[0], streams[2]):
        with pytest.raises(EngineError, match="a drafter failed.*no drafts today"):
            stream.result()
    assert engine.generate([good])[0].tokens == expected.tokens


def test_up_to_the_last_position(
    engine: Engine, pair: tuple[LoadedModel, LoadedModel], requests: list[Request]
) -> None:
    """Where one request has no room for a draft, the others are drafted as if alone."""
    most = pair[0].architecture.max_target_positions
    luck = random.Random(0)
    long = [
        replace(
            request,
            prompt=(
                request.prompt[0],
                *(luck.randrange(10, 60) for _ in range(most - 2 - 3 * index)),
            ),
            options=replace(request.options, max_new_tokens=10_000),
        )
        for index, request in enumerate(requests[:4])
    ]
    mixed = [*long, *requests[:4]]
    expected = alone(engine, mixed)
    for ours, wanted in zip(engine.generate(mixed), expected, strict=True):
        assert ours.tokens == wanted.tokens
        assert (ours.accepted, ours.drafted) == (wanted.accepted, wanted.drafted)
    plain = alone(engine, [replace(request, drafter=None) for request in long[:2]])
    assert [result.tokens for result in expected[:2]] == [result.tokens for result in plain]
