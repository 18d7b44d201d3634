"""A pipeline's drafts: the model's own tokens, by n-grams of the job or by a smaller model."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.engine import (
    Drafting,
    Engine,
    GenerationOptions,
    LoadedModel,
    NgramStore,
    Request,
    Result,
)
from pipelines.engine.decoding.speculative.timing import DraftTiming
from pipelines.engine.drafting import _have_same_encoder
from pipelines.errors import OptionError, RequestError
from tests.engine.conftest import token_sources
from tests.fixtures.checkpoints import write_marian

pytestmark = pytest.mark.usefixtures("unpaused_drafts")

LENGTH = 30


def generate(drafting: Drafting, model: LoadedModel, engine: Engine) -> list[Result]:
    """Two sources, the first one twice, one after the other."""
    options = GenerationOptions(max_new_tokens=LENGTH)
    start, results = (model.architecture.start_id,), []
    sources = token_sources(model, [9, 12])
    for source in (*sources, sources[0]):
        (encoded,) = drafting.encode([source])
        drafter = drafting.drafter_for(encoded, options)
        results += engine.generate([Request(encoded, start, options, drafter=drafter)])
    return results


@pytest.mark.slow
def test_ngrams_learn_from_the_job(engine: Engine, marian: LoadedModel) -> None:
    plain = generate(Drafting(marian), marian, engine)
    drafting = Drafting(marian, ngrams=True)
    before = drafting.report
    drafted = generate(drafting, marian, engine)
    assert [r.tokens for r in drafted] == [r.tokens for r in plain]
    assert drafted[2].accepted > LENGTH // 2, "the same output was seen before"
    assert drafting.report.accepted - before.accepted == sum(r.accepted for r in drafted)
    assert drafting.active
    assert not Drafting(marian).active


@pytest.mark.slow
def test_a_draft_model_gives_the_same(engine: Engine, marian: LoadedModel, tmp_path: Path) -> None:
    small = engine.load(write_marian(tmp_path / "small", seed=1, layers=1))
    same = engine.load(write_marian(tmp_path / "same"))
    plain = [r.tokens for r in generate(Drafting(marian), marian, engine)]
    for draft_model, shares in ((small, False), (same, True)):
        assert _have_same_encoder(marian, draft_model) is shares
        found = generate(Drafting(marian, draft_model), marian, engine)
        assert [r.tokens for r in found] == plain
    assert found[0].drafted, "the model of the same weights has drafted"
    assert found[0].accepted == found[0].drafted


@pytest.mark.slow
def test_equal_keys_and_values_are_computed_once(
    engine: Engine, marian: LoadedModel, tmp_path: Path
) -> None:
    """Where the draft model's layers attend to what layers of the model attend to."""
    same = engine.load(write_marian(tmp_path / "same"))
    drafting = Drafting(marian, same)
    (encoded,) = drafting.encode(token_sources(marian, [9]))
    draft = drafting._encoded[encoded]
    assert same.owns(draft)
    for own, drafted in ((encoded.keys, draft.keys), (encoded.values, draft.values)):
        assert all(a is b for a, b in zip(own, drafted, strict=True))
    other = engine.load(write_marian(tmp_path / "other", seed=1))
    drafting = Drafting(marian, other)
    (encoded,) = drafting.encode(token_sources(marian, [9]))
    assert drafting._encoded[encoded].keys[0] is not encoded.keys[0]


@pytest.mark.slow
def test_drafts_are_as_long_as_pays(
    engine: Engine, marian: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a draft model whose every token is right: two where two are best, and the same output."""
    plain = generate(Drafting(marian), marian, engine)
    drafting = Drafting(marian, engine.load(write_marian(tmp_path / "same")))
    passes = {}
    for length in (2, 16):
        monkeypatch.setattr(DraftTiming, "best_length", lambda self, n, length=length: length)
        before = marian.statistics.steps
        found = generate(drafting, marian, engine)
        passes[length] = marian.statistics.steps - before
        assert [r.tokens for r in found] == [r.tokens for r in plain]
    assert passes[2] >= len(plain) * LENGTH / 3
    assert passes[16] < passes[2]


def test_a_draft_model_that_loses_time_is_given_up(
    engine: Engine, marian: LoadedModel, tmp_path: Path
) -> None:
    small = engine.load(write_marian(tmp_path / "small", seed=1, layers=1))
    drafting = Drafting(marian, small)
    drafting._encoder_s = 1e6  # its encoder took very long
    options = GenerationOptions(max_new_tokens=LENGTH)
    encoded = drafting.encode(token_sources(marian, [9] * 8))
    assert drafting.drafter_for(encoded[0], options) is not None
    assert drafting.report.stopped
    (later,) = drafting.encode(token_sources(marian, [9]))
    assert drafting.drafter_for(later, options) is None


def test_only_greedy_requests_of_one_sequence_are_drafted(marian: LoadedModel) -> None:
    drafting = Drafting(marian, ngrams=True)
    (encoded,) = drafting.encode(token_sources(marian, [9]))
    for options in (
        GenerationOptions(max_new_tokens=9, temperature=0.5),
        GenerationOptions(max_new_tokens=9, beam_size=2),
    ):
        assert drafting.drafter_for(encoded, options) is None


def test_what_cannot_draft_is_refused(marian: LoadedModel, whisper: LoadedModel) -> None:
    with pytest.raises(RequestError, match="cannot draft for .* vocabulary of 51865"):
        Drafting(marian, whisper)
    with pytest.raises(OptionError, match="not with both"):
        Drafting(marian, marian, ngrams=True)


def test_a_store_keeps_to_its_bounds() -> None:
    store = NgramStore(longest=3, shortest=2, capacity=10)
    store.learn(range(100))
    assert store.guess([98], 1) == [], "one token is no n-gram of this store"
    assert store.guess([1, 2], 1) == [], "forgotten"
    assert store.guess([96, 97], 2) == [98, 99]
    for wrong in ({"shortest": 4}, {"shortest": 0}, {"capacity": 0}):
        with pytest.raises(OptionError):
            NgramStore(**wrong)  # type: ignore[arg-type]  # each is a number
