"""Beam search equals transformers', openai-whisper's and CTranslate2's, and shares a batch."""

from __future__ import annotations

import json
import warnings
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.generation.utils import GenerationMixin
from whisper.decoding import DecodingOptions, DecodingTask

from pipelines.asr import TranscribeOptions, Transcriber
from pipelines.engine import (
    AllowOnlyTokens,
    Engine,
    FinishReason,
    GenerationOptions,
    LoadedModel,
    NoRepeatNgram,
    RepetitionPenalty,
    Request,
    Result,
    SuppressTokens,
)
from pipelines.errors import EngineError, OptionError
from tests.asr.oracle import in_openai
from tests.conftest import Exactness
from tests.engine.conftest import Folders, mel_source, token_sources
from tests.engine.oracle import NEAR_TIE, encoded, reference

pytestmark = pytest.mark.oracle

LENGTH = 14


def frequent(engine: Engine, request: Request, several: bool) -> tuple[int, ...]:
    """Ids that a model with random weights often generates, to be used as eos."""
    options = replace(request.options, beam_size=5, n_best=5, eos_ids=())
    found = engine.generate([replace(request, options=options)])[0].hypotheses
    common = sorted({token for each in found for token in each.tokens[2:]})
    return tuple(common[:: 3 if several else 1])[: None if several else 1]


def same(tally: Exactness, ours: Result, theirs: list[list[int]], scores: list[float]) -> None:
    """Equal hypotheses in order, except for the order of ties."""
    assert [h.score for h in ours.hypotheses] == pytest.approx(scores, abs=NEAR_TIE, rel=1e-5)
    for mine, other, score in zip(ours.hypotheses, theirs, scores, strict=True):
        if list(mine.tokens) != other:
            near = [s for s in scores if abs(s - score) < NEAR_TIE]
            assert len(near) > 1, f"{mine.tokens} for {other}"
            tally.ties += 1
        tally.tokens += len(other)
    tally.prompts += 1


SEARCHES = [
    {"beam_size": 2},
    {"beam_size": 4},
    {"beam_size": 5, "length_penalty": 0.0},
    {"beam_size": 3, "length_penalty": 2.5},
    {"beam_size": 3, "length_penalty": -1.0},
]


@pytest.mark.parametrize("spec", ["marian:opus-mt-en-de", "marian:separate-vocabs", "whisper:tiny"])
def test_hypotheses_equal_generate(
    spec: str, engine: Engine, checkpoints: Folders, exactness: Exactness
) -> None:
    """All searches of all sources in one batch with greedy requests, with n-best and scores."""
    folder = checkpoints(spec)
    model, oracle = engine.load(folder), reference(folder)
    exactness.models += 1
    pad, start = model.architecture.pad_id, model.architecture.start_id
    audio = model.architecture.source == "audio"
    sources: Any = [mel_source(model, i) for i in range(2)] if audio else [
        torch.tensor(ids) for ids in token_sources(model, [4, 9, 17])
    ]  # fmt: skip
    encoded_sources = model.encode([s if audio else s.tolist() for s in sources])
    logit_filters = (
        () if audio else (SuppressTokens((pad,)), NoRepeatNgram(2), RepetitionPenalty(1.3))
    )
    plain = GenerationOptions(max_new_tokens=LENGTH, logit_filters=logit_filters)
    same_rules = {} if audio else {"bad_words_ids": [[pad]], "no_repeat_ngram_size": 2,
                                   "repetition_penalty": 1.3}  # fmt: skip
    requests, expected = [], []
    for source, encoding in zip(sources, encoded_sources, strict=True):
        for number, search in enumerate(SEARCHES):
            request = Request(encoding, (start, 7)[: 1 + number % 2], plain)
            ends = frequent(engine, request, several=number % 2 == 0)
            options = replace(plain, eos_ids=ends, n_best=search["beam_size"], **search)
            requests += [replace(request, options=options), request]
            penalty = search.get("length_penalty", 1.0)
            with torch.inference_mode():
                out = GenerationMixin.generate(
                    oracle,
                    encoder_outputs=encoded(oracle, source),  # which it changes
                    decoder_input_ids=torch.tensor([request.prompt]),
                    num_beams=search["beam_size"],
                    length_penalty=penalty,
                    num_return_sequences=options.n_best,
                    early_stopping=False,
                    max_new_tokens=LENGTH,
                    do_sample=False,
                    eos_token_id=list(ends),
                    output_scores=True,
                    return_dict_in_generate=True,
                    **same_rules,
                )
            tails = [row[len(request.prompt) :].tolist() for row in out.sequences]
            expected.append(([_upto(tail, ends) for tail in tails], out.sequences_scores.tolist()))
    results = engine.generate(requests)
    for ours, (tokens, scores) in zip(results[::2], expected, strict=True):
        same(exactness, ours, tokens, scores)
        assert ours.tokens == ours.hypotheses[0].tokens
    alone = [engine.generate([request])[0].tokens for request in requests]
    assert [result.tokens for result in results] == alone


def _upto(tokens: list[int], ends: tuple[int, ...]) -> list[int]:
    """Without the padding behind the end."""
    at = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: at + 1]


@pytest.fixture(scope="module")
def ct2(checkpoints: Folders, tmp_path_factory: pytest.TempPathFactory) -> Any:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `bench` brings this oracle")
    folder = checkpoints("marian:opus-mt-en-de")
    out = tmp_path_factory.mktemp("ct2") / "model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(folder)).convert(str(out))
    return ctranslate2.Translator(str(out), device="cpu", compute_type="float32", intra_threads=1)


CT2_SEARCHES = [
    {"beam_size": 2, "length_penalty": 1.0},
    {"beam_size": 4, "length_penalty": 0.0},
    {"beam_size": 3, "length_penalty": 0.5, "patience": 2.0},
    {"beam_size": 5, "length_penalty": 1.0, "patience": 0.5},
]


def test_hypotheses_equal_ctranslate2(
    ct2: Any, engine: Engine, marian: LoadedModel, checkpoints: Folders, exactness: Exactness
) -> None:
    vocabulary = json.loads((checkpoints("marian:opus-mt-en-de") / "vocab.json").read_text())
    names = {i: token for token, i in vocabulary.items()}
    pad = marian.architecture.pad_id
    for ids in token_sources(marian, [4, 9, 17]):
        encoding = marian.encode([ids])[0]
        plain = GenerationOptions(max_new_tokens=LENGTH, logit_filters=(SuppressTokens((pad,)),))
        request = Request(encoding, (pad,), plain)
        for several in (False, True):
            ends = frequent(engine, request, several)
            for search in CT2_SEARCHES:
                n_best = 2 if search.get("patience", 1.0) < 1 else search["beam_size"]
                options: Any = {**search, "n_best": n_best, "eos_ids": ends, "stopping": "ct2"}
                ours = engine.generate([replace(request, options=replace(plain, **options))])[0]
                (theirs,) = ct2.translate_batch(
                    [[names[i] for i in ids]],
                    min_decoding_length=0,
                    max_decoding_length=LENGTH,
                    num_hypotheses=n_best,
                    return_scores=True,
                    return_end_token=True,
                    end_token=[names[i] for i in ends],
                    **search,
                )
                tokens = [[vocabulary[t] for t in each] for each in theirs.hypotheses]
                same(exactness, ours, tokens, theirs.scores)


WHISPER_SEARCHES = [
    {"beam_size": 2},
    {"beam_size": 5},
    {"beam_size": 5, "length_penalty": 0.4},
    {"beam_size": 3, "patience": 2.0},
    {"beam_size": 4, "patience": 0.5, "length_penalty": 1.0},
]


@pytest.mark.parametrize("without_timestamps", [False, True])
def test_ids_equal_openai_whisper(
    without_timestamps: bool, engine: Engine, checkpoints: Folders, exactness: Exactness
) -> None:
    """With all of Whisper's logit filters; a frequent token is the eos."""
    folder = checkpoints("whisper:tiny")
    model, theirs = engine.load(folder), in_openai(folder)
    exactness.models += 1
    chosen = TranscribeOptions(without_timestamps=without_timestamps)
    transcriber = Transcriber(folder, engine=engine)
    decoder = transcriber.window_decoder("de", chosen)
    never = transcriber.recognizer.suppressed_tokens(chosen)
    plain = GenerationOptions(
        max_new_tokens=LENGTH,
        logit_filters=decoder._filters(),
        logprobs=True,
        stopping="openai",
    )
    for seed in range(2):
        mel = mel_source(model, seed)
        request = Request(model.encode([mel])[0], decoder.prompt(()), plain)
        features = theirs.embed_audio(mel[None])  # once for all searches
        for end in (*frequent(engine, request, several=True)[:3], 50257):
            for search in WHISPER_SEARCHES:
                options: Any = {**search, "eos_ids": (end,)}
                task = DecodingTask(
                    theirs,
                    DecodingOptions(
                        language="de",
                        sample_len=LENGTH,
                        without_timestamps=without_timestamps,
                        fp16=False,
                        suppress_tokens=never,
                        **search,  # type: ignore[arg-type]
                    ),
                )
                # The grammar keeps its end of text, the search gets another.
                task.tokenizer = copy(task.tokenizer)
                task.tokenizer.__dict__["eot"] = task.decoder.eot = end  # type: ignore[attr-defined]
                with warnings.catch_warnings():  # it sorts tensors with numpy
                    warnings.simplefilter("ignore", DeprecationWarning)
                    expected = task.run(features)[0]
                ours = engine.generate([replace(request, options=replace(plain, **options))])[0]
                tokens = [token for token in ours.tokens if token != end]
                assert tokens == expected.tokens
                average = sum(ours.logprobs) / (len(tokens) + 1)
                assert average == pytest.approx(expected.avg_logprob, abs=NEAR_TIE)
                exactness.prompts += 1
                exactness.tokens += len(tokens)


def mixed(engine: Engine, model: LoadedModel) -> list[Request]:
    """Greedy, beams of several widths, samples and best of several, of many lengths."""
    start = model.architecture.start_id
    encoded_sources = model.encode(token_sources(model, [3, 11, 6, 17, 8]))
    plain = GenerationOptions(max_new_tokens=9, logprobs=True)
    ends = frequent(engine, Request(encoded_sources[0], (start,), plain), several=True)
    options = [
        plain,
        replace(plain, beam_size=3, eos_ids=ends, n_best=2, max_new_tokens=14),
        replace(
            plain, beam_size=4, stopping="openai", eos_ids=ends, logit_filters=(NoRepeatNgram(1),)
        ),
        replace(plain, temperature=1.0, seed=3, max_new_tokens=12),
        replace(plain, temperature=0.7, seed=4, best_of=3, eos_ids=ends, n_best=3),
    ]
    return [
        Request(
            encoding,
            (start, *range(20, 20 + i % 3)),
            o,
            token_probs=((0, 30),),
            attention=((1, 0),),
        )
        for i, (encoding, o) in enumerate(zip(encoded_sources, options, strict=True))
    ]


def assert_equal(ours: Result, alone: Result) -> None:
    assert ours.tokens == alone.tokens
    assert [h.tokens for h in ours.hypotheses] == [h.tokens for h in alone.hypotheses]
    assert ours.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert ours.token_probs == pytest.approx(alone.token_probs, abs=1e-5)
    assert ours.attention is not None
    assert alone.attention is not None
    assert ours.attention.shape[1] == len(ours.tokens)
    torch.testing.assert_close(ours.attention, alone.attention, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def mixed_alone(engine: Engine, marian: LoadedModel) -> list[tuple[Request, Result]]:
    """The requests of `mixed`, and the result of each when it runs alone."""
    return [(request, engine.generate([request])[0]) for request in mixed(engine, marian)]


@given(data=st.data())
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_searches_join_and_leave_a_running_batch(
    data: st.DataObject,
    engine: Engine,
    marian: LoadedModel,
    mixed_alone: list[tuple[Request, Result]],
) -> None:
    requests, alone = zip(*mixed_alone, strict=True)
    running = []
    for _ in range(data.draw(st.integers(2, 9))):
        which = data.draw(st.integers(0, len(requests) - 1))
        stream = engine.stream(requests[which])
        read: list[int] = []
        for _ in range(data.draw(st.integers(0, 3))):
            read.extend(token for event in [next(stream, None)] if event for token in event.tokens)
        cancelled = data.draw(st.integers(0, 4)) == 0
        if cancelled:
            stream.cancel()
        running.append((which, stream, read, cancelled))
    for which, stream, read, cancelled in running:
        for event in stream:
            read.extend(event.tokens)
        result = stream.result()
        assert list(result.tokens) == read
        if result.reason is FinishReason.CANCELLED:
            assert cancelled
            assert list(alone[which].tokens[: len(read)]) == read
        else:
            assert_equal(result, alone[which])
    engine.generate(requests[:1])
    assert len(marian._batch) == 0


def test_beams_share_their_source(engine: Engine, marian: LoadedModel) -> None:
    requests = mixed(engine, marian)
    streams = [engine.stream(replace(request, options=replace(
        request.options, max_new_tokens=30, eos_ids=()))) for request in requests]  # fmt: skip
    next(streams[0])
    next(streams[0])
    batch = marian._batch
    assert len(batch._cross) == len(requests)
    assert len(batch._cache) == sum(request.options.max_sequences for request in requests)
    for stream in streams:
        stream.cancel()
    engine.generate(requests[:1])
    assert len(batch._cross) == len(batch._cache) == 0


def test_an_interrupted_step_loses_no_beam(
    engine: Engine, marian: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = mixed(engine, marian)
    alone = [engine.generate([request])[0] for request in requests]
    decode, calls = marian._backend.decode, 0

    def interrupted(*args: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return decode(*args)

    monkeypatch.setattr(marian._backend, "decode", interrupted)
    streams = [engine.stream(request) for request in requests]
    with pytest.raises(KeyboardInterrupt):
        streams[1].result()
    for stream, expected in zip(streams, alone, strict=True):
        assert_equal(stream.result(), expected)


def test_more_beams_than_the_batch_has_room_for(checkpoints: Folders, marian: LoadedModel) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1, max_batch=2) as small:
        model = small.load(checkpoints("marian:opus-mt-en-de"))
        requests = mixed(small, model)
        alone = [small.generate([request])[0] for request in requests]
        for ours, expected in zip(small.generate(requests), alone, strict=True):
            assert_equal(ours, expected)


def test_fewer_possible_tokens_than_beams(engine: Engine, marian: LoadedModel) -> None:
    request = mixed(engine, marian)[1]
    few = replace(
        request.options, logit_filters=(AllowOnlyTokens((5, 9)),), beam_size=5, n_best=5, eos_ids=()
    )
    result = engine.generate([replace(request, options=replace(few, max_new_tokens=3))])[0]
    assert len({h.tokens for h in result.hypotheses}) == 5
    assert {token for h in result.hypotheses for token in h.tokens} == {5, 9}
    null_source = replace(few, logit_filters=(AllowOnlyTokens((5,)), SuppressTokens((5,))))
    with pytest.raises(EngineError, match="leave no token"):
        engine.generate([replace(request, options=null_source)])


def test_contradictory_options_are_refused() -> None:
    for wrong in (
        {"beam_size": 0},
        {"beam_size": 2, "temperature": 0.5},
        {"best_of": 2},
        {"n_best": 2},
        {"beam_size": 2, "patience": 0.0},
        {"beam_size": 2, "stopping": "mine"},
        {"min_p": 1.5},
    ):
        with pytest.raises(OptionError):
            GenerationOptions(max_new_tokens=1, **wrong)  # type: ignore[arg-type]
