"""Drafters change neither greedy outputs nor the distribution of sampled ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipelines.engine import (
    Engine,
    FinishReason,
    GenerationOptions,
    LoadedModel,
    ModelDrafter,
    NgramDrafter,
    NgramStore,
    NoRepeatNgram,
    Request,
    Result,
    SuppressTokens,
)
from pipelines.engine.decoding.request import Drafter, DraftSession, Proposal
from pipelines.errors import EngineError, OptionError, RequestError
from tests.engine.chi_squared import chi_squared_p
from tests.engine.conftest import mel_source, token_sources
from tests.fixtures.checkpoints import write_marian, write_whisper

pytestmark = pytest.mark.slow

LENGTH = 24


@pytest.fixture(scope="module", params=["marian", "whisper"])
def pair(
    request: pytest.FixtureRequest, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoadedModel, LoadedModel]:
    """A model, and a smaller one of the same vocabulary."""
    model: LoadedModel = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("small") / request.param
    if request.param == "marian":
        small = write_marian(folder, layers=1, d_model=32, heads=2, ffn=64, seed=3)
    else:
        small = write_whisper(folder, decoder_layers=1, dtype="float32")
    return model, engine.load(small)


def sources_of(model: LoadedModel, count: int) -> list[object]:
    if model.architecture.source == "tokens":
        return list(token_sources(model, [3, 11, 6, 17, 9][:count]))
    return [mel_source(model, seed) for seed in range(count)]


def encode(model: LoadedModel, sources: Sequence[object]) -> list[object]:
    return [model.encode([source])[0] for source in sources]


class ScriptedDrafter(DraftSession):
    """Proposes the given tokens, and a wrong one at every `wrong_every`th position."""

    def __init__(self, known: Sequence[int], wrong_every: int) -> None:
        self.known, self.wrong_every, self.gamma = list(known), wrong_every, 5

    def check(self, vocab_size: int) -> None: ...

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> ScriptedDrafter:
        self.prompt = len(prompt)
        return self

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        at = len(sequence) - self.prompt
        guesses = self.known[at : at + min(most, self.gamma)]
        return Proposal(
            [7 if self.wrong_every and (at + i) % self.wrong_every == 0 else g
             for i, g in enumerate(guesses)]
        )  # fmt: skip


def requests_of(model: LoadedModel, small: LoadedModel) -> tuple[list[Request], list[Drafter]]:
    """Greedy, filtered, short, sampled and beam search requests, and a drafter for each."""
    start = model.architecture.start_id
    sources = sources_of(model, 5)
    encoded_sources, drafts = encode(model, sources), encode(small, sources)
    plain = GenerationOptions(max_new_tokens=LENGTH, logprobs=True)
    options = [
        plain,
        replace(plain, logit_filters=(SuppressTokens((5, 9)), NoRepeatNgram(2))),
        replace(plain, max_new_tokens=9),
        replace(plain, temperature=0.8, top_k=40, seed=7),
        replace(plain, beam_size=3),
    ]
    requests = [
        Request(m, (start, *range(20, 20 + i % 3)), o, token_probs=((0, 30), (i % 3, 31)),
                attention=((1, 0),))
        for i, (m, o) in enumerate(zip(encoded_sources, options, strict=True))
    ]  # fmt: skip
    drafters: list[Drafter] = [
        ModelDrafter(small, drafts[0]),
        ModelDrafter(small, drafts[1], gamma=2, adaptive=True),
        NgramDrafter(gamma=6),
        NgramDrafter(source=(20, 21, 22)),
        NgramDrafter(),
    ]
    return requests, drafters


def assert_equal(ours: Result, plain: Result) -> None:
    assert ours.tokens == plain.tokens
    assert ours.reason == plain.reason
    assert ours.logprobs == pytest.approx(plain.logprobs, abs=1e-4)
    assert ours.token_probs == pytest.approx(plain.token_probs, abs=1e-5)
    assert ours.attention is not None
    assert plain.attention is not None
    torch.testing.assert_close(ours.attention, plain.attention, atol=1e-4, rtol=0)


def test_greedy_speculation_is_greedy(
    engine: Engine, pair: tuple[LoadedModel, LoadedModel]
) -> None:
    """Alone, in one batch, and with drafts that are right, wrong, or both in turn."""
    requests, drafters = requests_of(*pair)
    plain = [engine.generate([request])[0] for request in requests]
    end = plain[0].tokens[7]
    ending = replace(requests[0], options=replace(requests[0].options, eos_ids=(end,)))
    requests, drafters = [*requests, ending], [*drafters, ScriptedDrafter(plain[0].tokens, 0)]
    plain.append(engine.generate([ending])[0])
    assert plain[-1].reason is FinishReason.EOS
    drafted = [replace(r, drafter=d) for r, d in zip(requests, drafters, strict=True)]
    for ours, alone in zip(engine.generate(drafted), plain, strict=True):
        assert_equal(ours, alone)
    for request, alone in zip(drafted, plain, strict=True):
        assert_equal(engine.generate([request])[0], alone)
    for wrong_every in (0, 1, 2, 3):
        knowing = replace(requests[1], drafter=ScriptedDrafter(plain[1].tokens, wrong_every))
        result = engine.generate([knowing, requests[0], drafted[2]])
        for ours, alone in zip(result, (plain[1], plain[0], plain[2]), strict=True):
            assert_equal(ours, alone)
        assert (result[0].accepted == 0) == (wrong_every == 1)


def test_accepted_drafts_save_passes(
    engine: Engine, pair: tuple[LoadedModel, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = pair
    request = requests_of(*pair)[0][0]
    plain = engine.generate([request])[0]
    decode, passes = model.backend.decode, 0

    def counted(*args: object) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return decode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(model.backend, "decode", counted)
    result = engine.generate([replace(request, drafter=ScriptedDrafter(plain.tokens, 0))])[0]
    assert result.accepted == result.drafted == LENGTH - passes
    assert passes == LENGTH // 6


def test_up_to_the_last_position(engine: Engine, pair: tuple[LoadedModel, LoadedModel]) -> None:
    requests, drafters = requests_of(*pair)
    endless = GenerationOptions(max_new_tokens=10_000)
    request = replace(requests[0], options=endless, attention=(), token_probs=())
    plain = engine.generate([request])[0]
    other = replace(requests[2], prompt=requests[2].prompt[:1], token_probs=())
    for drafter in (drafters[0], ScriptedDrafter(plain.tokens, 9)):
        ours, _ = engine.generate([replace(request, drafter=drafter), other])
        assert ours.tokens == plain.tokens


def test_a_shared_ngram_store_learns_from_other_requests(
    engine: Engine, marian: LoadedModel
) -> None:
    store = NgramStore(longest=4)
    encoded = marian.encode(token_sources(marian, [9]))[0]
    options = GenerationOptions(max_new_tokens=LENGTH, logit_filters=(NoRepeatNgram(1),))
    request = Request(encoded, (marian.architecture.start_id,), options)
    drafter = NgramDrafter(store, gamma=6)
    first, second = (engine.generate([replace(request, drafter=drafter)])[0] for _ in "ab")
    assert first.tokens == second.tokens
    assert first.accepted == 0
    assert second.accepted > LENGTH // 2


SAMPLED = [
    {"temperature": 1.0, "top_k": 6},
    {"temperature": 1.4, "top_k": 8, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 9, "min_p": 0.05, "logit_filters": (NoRepeatNgram(1),)},
]


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        (SAMPLED[0], "none"),
        (SAMPLED[0], "ngram"),
        pytest.param(SAMPLED[0], "model", marks=pytest.mark.campaign),
        *((each, "model") for each in SAMPLED[1:]),
        (SAMPLED[0], "shortlist"),
    ],
)
def test_sampled_speculation_keeps_the_distribution(
    sampling: dict[str, object],
    kind: str,
    engine: Engine,
    marian: LoadedModel,
    small_marian: LoadedModel,
) -> None:
    """The second token, summed over all first ones, follows the model's probabilities."""
    source = token_sources(marian, [6])
    encoded, start = marian.encode(source)[0], marian.architecture.start_id
    options = GenerationOptions(max_new_tokens=3, **sampling)  # type: ignore[arg-type]
    if kind == "shortlist":  # two of the likely first tokens, and some that are unlikely
        likely = sorted(probs(marian, encoded, (start,), options))
        eos = marian.architecture.eos_ids[0]
        small_marian = engine.load(small_marian.folder, [*likely[:2], *range(20, 30), eos])
    draft = small_marian.encode(source)[0]
    runs, requests = 400, []
    for seed in range(runs):
        drafter: Drafter | None = None
        if kind in ("model", "shortlist"):
            drafter = ModelDrafter(small_marian, draft, gamma=2)
        elif kind == "ngram":
            drafter = NgramDrafter(source=(start, 5, 6), gamma=2)
        requests.append(Request(encoded, (start,), replace(options, seed=seed), drafter=drafter))
    results = engine.generate(requests)
    expected: Counter[tuple[int, ...]] = Counter()
    for first, chance in probs(marian, encoded, (start,), options).items():
        for second, after in probs(marian, encoded, (start, first), options).items():
            expected[first, second] += chance * after * runs
    counts = Counter(result.tokens[:2] for result in results)
    assert set(counts) <= set(expected)
    common = [pair for pair, number in expected.items() if number >= 5]
    rest = runs - sum(expected[pair] for pair in common)
    seen = [counts[pair] for pair in common]
    wanted = [expected[pair] for pair in common]
    if rest >= 5:
        seen.append(runs - sum(seen))
        wanted.append(rest)
    assert chi_squared_p(seen, wanted) > 1e-3


def probs(
    model: LoadedModel, encoded: object, prompt: tuple[int, ...], options: GenerationOptions
) -> dict[int, float]:
    """The distribution of the next token, computed without the engine's decoding."""
    from pipelines.engine import apply_filters
    from pipelines.engine.decoding.sampling.distributions import token_distribution

    logits = model.score(encoded, prompt)[-1]  # type: ignore[arg-type]
    logits = apply_filters(options.logit_filters, logits, prompt[:1], prompt[1:])
    found = token_distribution(
        logits, options.temperature, options.top_k, options.top_p, options.min_p
    )
    return {int(i): float(found[i]) for i in found.nonzero()[:, 0]}


@pytest.fixture(scope="module")
def small_marian(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("small") / "marian"
    return engine.load(write_marian(folder, layers=1, d_model=32, heads=2, ffn=64, seed=3))


def test_a_distilled_drafter_shares_the_encoder(
    engine: Engine,
    whisper: LoadedModel,
    marian: LoadedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As distil-whisper: the same encoder, two layers of the decoder."""
    folder = tmp_path_factory.mktemp("distilled") / "whisper"
    write_whisper(folder, decoder_layers=1, dtype="float32")
    state = load_file(folder / "model.safetensors")
    whole = load_file(whisper.folder / "model.safetensors")
    kept = {name: whole[name] if ".encoder." in name else value for name, value in state.items()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    small = engine.load(folder)
    sources = [mel_source(whisper, seed) for seed in range(2)]
    shared = whisper.encode_sharing(sources, small)
    alone = zip(whisper.encode(sources), small.encode(sources), strict=True)
    for (mine, drafts), (own, other) in zip(shared, alone, strict=True):
        for ours, theirs in ((mine, own), (drafts, other)):
            torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=0)
            torch.testing.assert_close(ours.values, theirs.values, atol=1e-5, rtol=0)
        options = GenerationOptions(max_new_tokens=LENGTH)
        request = Request(mine, (whisper.architecture.start_id,), options)
        plain = engine.generate([request])[0]
        drafted = replace(request, drafter=ModelDrafter(small, drafts))
        assert engine.generate([drafted])[0].tokens == plain.tokens
    with pytest.raises(RequestError, match="another encoder"):
        whisper.encode_sharing(sources, marian)


def _raise(*args: object) -> None:
    raise ZeroDivisionError("oops")


class _NoResults:
    """A DraftBatch that proposes for no session."""

    bytes = 0
    bytes_for = keep = lambda *args: 0

    def propose(self, inputs: Sequence[object]) -> list[Proposal | Exception]:
        return []


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"propose": _raise}, "oops"),
        ({"propose": lambda *args: None}, "NoneType"),
        ({"propose": lambda *args: Proposal(["a"])}, "TypeError"),
        ({"group": []}, "unhashable"),
        ({"group": "own"}, "no batch"),
        ({"group": "own", "new_batch": lambda self: _NoResults()}, "shorter"),
        ({"pauses": torch.ones(2)}, "ambiguous"),
        ({"on_verified": _raise}, "oops"),
    ],
)
def test_a_failing_drafter_fails_its_own_request_only(
    engine: Engine,
    pair: tuple[LoadedModel, LoadedModel],
    faults: dict[str, object],
    message: str,
) -> None:
    requests, _ = requests_of(*pair)
    good = engine.generate([requests[0]])[0]
    drafter = type("Faulty", (ScriptedDrafter,), faults)([5] * 30, 0)
    bad = engine.stream(replace(requests[2], drafter=drafter))
    strange = engine.stream(replace(requests[2], drafter=ScriptedDrafter([10**9] * 30, 0)))
    neighbor = engine.stream(requests[0])
    assert_equal(neighbor.result(), good)
    assert strange.result().drafted == 0
    with pytest.raises(EngineError, match=message):
        bad.result()


def test_one_call_of_the_head_for_all_drafted_requests(
    engine: Engine, pair: tuple[LoadedModel, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, small = pair
    requests, _ = requests_of(model, small)
    plain = replace(requests[0], token_probs=())
    (expected,) = engine.generate([plain])
    request = replace(plain, drafter=ScriptedDrafter(expected.tokens, 3))
    calls, logits = 0, model.backend.logits

    def counted(hidden: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return logits(hidden)

    monkeypatch.setattr(model.backend, "logits", counted)
    (one,) = engine.generate([request])
    for_one, calls = calls, 0
    results = engine.generate([request] * 6)
    assert calls == for_one > 0
    assert [result.tokens for result in results] == [one.tokens] * 6 == [expected.tokens] * 6


def test_a_session_that_is_not_derived_is_refused(
    engine: Engine, pair: tuple[LoadedModel, LoadedModel]
) -> None:
    class Bare:
        def check(self, vocab_size: int) -> None: ...

        def start(self, prompt: Sequence[int], options: GenerationOptions) -> Bare:
            return self

        def propose(self, sequence: Sequence[int], most: int) -> Proposal:
            return Proposal([])

    request = requests_of(*pair)[0][0]
    with pytest.raises(RequestError, match=r"Bare cannot draft: derive it from .*DraftSession"):
        engine.stream(replace(request, drafter=Bare()))  # type: ignore[arg-type]


def test_drafters_that_do_not_fit_the_model_are_refused(
    engine: Engine, marian: LoadedModel, whisper: LoadedModel
) -> None:
    start = marian.architecture.start_id
    text, sound = (
        marian.encode(token_sources(marian, [4]))[0],
        whisper.encode([mel_source(whisper)]),
    )
    request = Request(text, (start,), GenerationOptions(max_new_tokens=3))
    with pytest.raises(RequestError, match="vocabulary"):
        engine.stream(replace(request, drafter=ModelDrafter(whisper, sound[0])))
    with pytest.raises(RequestError, match="another model"):
        ModelDrafter(whisper, text)
    with pytest.raises(RequestError, match="outside the vocabulary"):
        engine.stream(replace(request, drafter=NgramDrafter(source=(10**9,))))
    with pytest.raises(OptionError, match="gamma"):
        NgramDrafter(gamma=0)
    with pytest.raises(OptionError, match="at least 1"):
        NgramStore(0)
