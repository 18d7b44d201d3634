"""Decoding with a cache equals decoding without: every prefix, every mix of neighbors."""

from __future__ import annotations

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request, SuppressTokens
from tests.engine.conftest import Folders, mel_source, token_sources

TOLERANCE = 1e-4


@pytest.mark.oracle
@pytest.mark.parametrize("spec", ["whisper:tiny", "marian:opus-mt-en-de"])
def test_cached_equals_uncached_for_every_prefix(
    spec: str, checkpoints: Folders, engine: Engine
) -> None:
    from tests.engine.oracle import reference, teacher_forced

    model, oracle = engine.load(checkpoints(spec)), reference(checkpoints(spec))
    if model.architecture.source == "audio":
        source = mel_source(model)
    else:
        source = torch.tensor(token_sources(model, [12])[0])
    encoded = model.encode([source if source.ndim == 2 else source.tolist()])[0]
    start = model.architecture.start_id
    options = GenerationOptions(max_new_tokens=20, logprobs=True)
    result = engine.generate([Request(encoded, (start,), options)])[0]
    tokens = [start, *result.tokens]
    whole = model.score(encoded, tokens)
    theirs = teacher_forced(oracle, source, tokens)
    torch.testing.assert_close(whole, theirs, atol=TOLERANCE, rtol=0)
    for length in range(1, len(tokens)):
        uncached = model.score(encoded, tokens[:length])
        torch.testing.assert_close(uncached, whole[:length], atol=TOLERANCE, rtol=0)
        logprob = float(uncached[-1].log_softmax(-1)[tokens[length]])
        assert logprob == pytest.approx(result.logprobs[length - 1], abs=TOLERANCE)


@pytest.mark.slow
def test_a_sequence_does_not_depend_on_the_batch(engine: Engine, marian: LoadedModel) -> None:
    pad = marian.architecture.pad_id
    options = GenerationOptions(
        max_new_tokens=25, logit_filters=(SuppressTokens((pad,)),), logprobs=True
    )
    mine, *others = marian.encode(token_sources(marian, [7, 3, 11, 29, 2, 16], seed=3))
    alone = engine.generate([Request(mine, (pad,), options)])[0]
    for n in range(1, len(others) + 1):
        requests = [
            Request(m, (pad, *range(10, 10 + i)), options) for i, m in enumerate(others[:n])
        ]
        crowd = engine.generate([*requests, Request(mine, (pad,), options)])[-1]
        assert crowd.tokens == alone.tokens
        assert crowd.logprobs == pytest.approx(alone.logprobs, abs=TOLERANCE)


@pytest.mark.slow
def test_one_source_serves_many_requests(engine: Engine, whisper: LoadedModel) -> None:
    start = whisper.architecture.start_id
    encoded = whisper.encode([mel_source(whisper)])[0]
    other = whisper.encode([mel_source(whisper, 1)])[0]
    options = GenerationOptions(max_new_tokens=15)
    prompts = [(start,), (start, 100), (start, 100, 200), (start,)]
    alone = [engine.generate([Request(encoded, p, options)])[0].tokens for p in prompts]
    mixed = [Request(encoded, prompts[0], options), Request(other, (start,), options)]
    mixed += [Request(encoded, p, options) for p in prompts[1:]]
    together = [r.tokens for r in engine.generate(mixed)]
    assert [together[0], *together[2:]] == alone


@pytest.mark.slow
def test_encoding_together_equals_encoding_alone(marian: LoadedModel) -> None:
    sources = token_sources(marian, [4, 40, 1, 17])
    for source, encoded in zip(sources, marian.encode(sources), strict=True):
        assert encoded.length == len(source)
        alone = marian.encode([source])[0]
        for a, b in zip(encoded.keys + encoded.values, alone.keys + alone.values, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
