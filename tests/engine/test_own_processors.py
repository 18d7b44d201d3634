"""A subclass of LogitsProcessor is obeyed: with a cache, without, and with drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pipelines.engine import (
    Engine,
    GenerationOptions,
    LoadedModel,
    LogitsProcessor,
    ModelDrafter,
    MultinomialProcessor,
    NgramDrafter,
    NgramStore,
    Request,
    TopKProcessor,
    autoregressive_generate_encoder_decoder,
    speculative_generate_encoder_decoder,
)
from pipelines.errors import EngineError, OptionError
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import token_sources
from tests.engine.modules import made

RUNS, TOKENS = 200, 2
CHANCES = (0.5, 0.3, 0.2)


class ByRank(LogitsProcessor):
    """The three most probable tokens, with fixed chances, whatever their logits."""

    def __call__(self, logits: Tensor) -> Tensor:
        best = logits.topk(len(CHANCES), -1).indices
        chances = torch.tensor(CHANCES).expand(best.shape)
        return torch.zeros_like(logits).scatter_(-1, best, chances)


class Second(LogitsProcessor):
    """Always the second most probable token."""

    def sample(self, probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return probabilities.topk(2, -1).indices[..., 1:]


class Banned(LogitsProcessor):
    """Written for the original: its `_process` edits logits [..., vocab] in place, and its `sample`
    takes probabilities alone. Bans one token; the attribute `top_p` is its own matter."""

    def __init__(self, temperature: float, banned: int) -> None:
        super().__init__(temperature)
        self.banned, self.top_p = banned, 0.1

    def _process(self, logits: Tensor) -> Tensor:
        logits[:, self.banned] = -1e20
        return logits

    def sample(self, probs: Tensor) -> Tensor:  # type: ignore[override]
        return torch.argmax(probs, dim=-1).unsqueeze(-1)


class Only(LogitsProcessor):
    """Leaves one token, whatever the logits."""

    def _process(self, logits: Tensor) -> Tensor:
        return torch.full_like(logits, -1e20).index_fill_(-1, torch.tensor(7), 0.0)


@pytest.fixture(scope="module")
def marian(engine: Engine) -> LoadedModel:
    """Of a small vocabulary, which is quick to draw from."""
    return engine.wrap(made("marian"))


@pytest.fixture(scope="module")
def source(marian: LoadedModel) -> list[int]:
    return token_sources(marian, [6])[0]


def ranked(model: LoadedModel, source: list[int], tokens: list[int]) -> list[int]:
    """The most probable tokens after `tokens`, best first."""
    logits = model.score(model.encode([source])[0], tokens)[-1]
    return [int(i) for i in logits.topk(len(CHANCES)).indices]


def follows(counts: Mapping[tuple[int, ...], int], wanted: Mapping[tuple[int, ...], float]) -> bool:
    """Whether counts of outcomes follow their chances, by chi-square."""
    runs = sum(counts.values())
    assert set(counts) <= set(wanted), "an outcome that is impossible"
    seen = [counts.get(outcome, 0) for outcome in wanted]
    expected = [chance * runs for chance in wanted.values()]
    return chi_squared_p(seen, expected) > 1e-4


@pytest.mark.slow
def test_ones_own_distribution_in_all_ways(
    engine: Engine, marian: LoadedModel, source: list[int]
) -> None:
    start = marian.architecture.start_id
    wanted = {
        (one, two): chance * after
        for one, chance in zip(ranked(marian, source, [start]), CHANCES, strict=True)
        for two, after in zip(ranked(marian, source, [start, one]), CHANCES, strict=True)
    }
    encoded = marian.encode([source])[0]
    uncached = marian.uncached()
    store = NgramStore()
    for outcome in wanted:
        store.learn((start, *outcome))
    plain = Request(encoded, (start,), ByRank().options(TOKENS))
    assert plain.options.processor is not None
    ways = {
        "cached": plain,
        "n-gram": replace(plain, drafter=NgramDrafter(store)),
        "model": replace(plain, drafter=ModelDrafter(marian, encoded)),
        # A drafter that is wrong mostly: its distribution is another one.
        "draft": replace(plain, draft=next(iter(wanted))),
    }
    for way, request in ways.items():
        results = engine.generate(
            [replace(request, options=replace(request.options, seed=s)) for s in range(RUNS)]
        )
        assert follows(Counter(r.tokens for r in results), wanted), way
    streams = [uncached.stream(plain) for _ in range(RUNS)]
    assert follows(Counter(s.result().tokens for s in streams), wanted)


def test_ones_own_draws(marian: LoadedModel, source: list[int]) -> None:
    start, expected = marian.architecture.start_id, list[int]()
    for _ in range(4):
        expected.append(ranked(marian, source, [start, *expected])[1])
    for use_cache in (True, False):
        ids = autoregressive_generate_encoder_decoder(
            source, marian, 4, Second(), eos_tokens_id=[], use_cache=use_cache
        )
        assert ids == [start, *expected]
    ids, rate = speculative_generate_encoder_decoder(
        source, marian, marian, max_gen_len=4, logits_processor=Second(), eos_tokens_id=[]
    )
    assert (ids, rate) == ([start, *expected], 1.0)


def test_best_of_draws_from_ones_own_distribution(
    engine: Engine, marian: LoadedModel, source: list[int]
) -> None:
    start, encoded = marian.architecture.start_id, marian.encode([source])[0]
    options = replace(ByRank().options(1, seed=2), best_of=20, n_best=20)
    found = engine.generate([Request(encoded, (start,), options)])[0]
    assert {h.tokens[0] for h in found.hypotheses} == set(ranked(marian, source, [start]))
    with pytest.raises(OptionError, match="no logits processor of your own"):
        replace(ByRank().options(1), beam_size=2)


def test_a_processor_that_edits_logits(marian: LoadedModel, source: list[int]) -> None:
    logits = torch.tensor([[0.5, 2.0, -1.0, 1.0]])
    kept = logits.clone()
    edited = torch.tensor([[0.5, -1e20, -1.0, 1.0]])
    assert torch.equal(Banned(2.0, 1)(logits), (edited / 2.0).softmax(-1))
    assert torch.equal(logits, kept)
    start = marian.architecture.start_id
    for use_cache in (True, False):
        ids = autoregressive_generate_encoder_decoder(
            source, marian, 3, Only(), eos_tokens_id=[], use_cache=use_cache
        )
        assert ids == [start, 7, 7, 7]

    class Allowed(TopKProcessor):
        def _process(self, logits: Tensor) -> Tensor:
            return logits.index_fill(-1, torch.tensor([1]), -1e20)

    assert Allowed(1.0, 2)(logits)[0].gt(0).tolist() == [True, False, False, True]


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_processor_written_for_the_original_runs_everywhere(
    marian: LoadedModel, source: list[int], use_cache: bool
) -> None:
    start = marian.architecture.start_id
    banned = ranked(marian, source, [start])[0]
    expected = list[int]()
    for _ in range(5):
        best = ranked(marian, source, [start, *expected])
        expected.append(next(token for token in best if token != banned))
    processor = Banned(0.7, banned)
    plain = autoregressive_generate_encoder_decoder(
        source, marian, 5, processor, eos_tokens_id=[], use_cache=use_cache
    )
    assert plain == [start, *expected]
    for drafter in (marian, made("marian", seed=1), NgramStore()):
        drafted, _ = speculative_generate_encoder_decoder(
            source, drafter, marian, max_gen_len=5, logits_processor=processor, eos_tokens_id=[],
            use_cache=use_cache,
        )  # fmt: skip
        assert drafted == plain


def test_debug_writes_tokens_by_a_tokenizer(
    marian: LoadedModel, source: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    class Tokenizer:
        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return [f"<{i}>" for i in ids]

    written = {}
    for tokenizer in (None, Tokenizer()):
        ids, _ = speculative_generate_encoder_decoder(
            source, marian, marian, tokenizer, max_gen_len=3, eos_tokens_id=[], debug=True
        )
        written[tokenizer is None] = capsys.readouterr().err
    tokens = [f"<{i}>" for i in ids[1:]]
    assert all(token in written[False] for token in tokens)
    assert "<" not in written[True]
    with pytest.raises(OptionError, match="tokenizer, the fourth argument.*; 5 has not"):
        speculative_generate_encoder_decoder(source, marian, marian, 5)


def test_the_named_processors_are_no_processors_of_ones_own() -> None:
    assert MultinomialProcessor(0.5).options(1).processor is None


@pytest.mark.parametrize("fault", ["raises", "shape", "draws"])
def test_a_faulty_processor_fails_its_own_request_only(
    engine: Engine, marian: LoadedModel, source: list[int], fault: str
) -> None:
    class Faulty(LogitsProcessor):
        def __call__(self, logits: Tensor) -> Tensor:
            if fault == "raises":
                raise KeyError("mine")
            return logits[..., :2] if fault == "shape" else logits.softmax(-1)

    class FaultyDraws(LogitsProcessor):
        def sample(self, probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
            return torch.tensor([-1])

    processor = FaultyDraws() if fault == "draws" else Faulty()
    start, encoded = (marian.architecture.start_id,), marian.encode([source])[0]
    plain = Request(encoded, start, GenerationOptions(max_new_tokens=5))
    neighbor = engine.stream(plain)
    with pytest.raises(EngineError, match="a logits processor"):
        engine.stream(Request(encoded, start, processor.options(5))).result()
    assert neighbor.result().tokens == engine.generate([plain])[0].tokens


def test_arguments_of_the_original_exist_or_are_refused(
    marian: LoadedModel, source: list[int]
) -> None:
    plain = autoregressive_generate_encoder_decoder(
        source, marian, 6, eos_tokens_id=[], use_cache=True
    )
    for first_target in (True, False):
        events = []
        ids, rate = speculative_generate_encoder_decoder(
            source, marian, marian, gamma=5, max_gen_len=6, eos_tokens_id=[], use_cache=True,
            first_target=first_target, debug=events.append,
        )  # fmt: skip
        assert (ids, rate) == (plain, 1.0)
        assert (events[0].kind == "token") is first_target
    with pytest.raises(OptionError, match="skip_sample_adjustment=True is refused"):
        speculative_generate_encoder_decoder(source, marian, marian, skip_sample_adjustment=True)
