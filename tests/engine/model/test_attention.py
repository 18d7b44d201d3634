"""Captured attention equals what transformers reports, with drafts and neighbors too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request
from pipelines.errors import RequestError
from tests.engine.conftest import Folders, mel_source, token_sources

HEADS = ((1, 0), (0, 3), (1, 2))
OPTIONS = GenerationOptions(max_new_tokens=12)


@pytest.mark.oracle
def test_equals_transformers(engine: Engine, whisper: LoadedModel, checkpoints: Folders) -> None:
    from transformers import WhisperForConditionalGeneration

    mel = mel_source(whisper)
    start = whisper.architecture.start_id
    request = Request(whisper.encode([mel])[0], (start, 50, 60), OPTIONS, attention=HEADS)
    result = engine.generate([request])[0]
    oracle = WhisperForConditionalGeneration.from_pretrained(
        checkpoints("whisper:tiny"), attn_implementation="eager"
    )
    ids = torch.tensor([[*request.prompt, *result.tokens]])
    with torch.inference_mode():
        output = oracle(
            input_features=mel[None], decoder_input_ids=ids[:, :-1], output_attentions=True
        )
    expected = torch.stack([output.cross_attentions[layer][0, head] for layer, head in HEADS])
    assert result.attention is not None
    torch.testing.assert_close(
        result.attention, expected[:, len(request.prompt) - 1 :], atol=1e-5, rtol=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", ["marian", "whisper"])
def test_does_not_depend_on_drafts_and_neighbors(
    family: str, engine: Engine, request: pytest.FixtureRequest
) -> None:
    model: LoadedModel = request.getfixturevalue(family)
    if family == "marian":
        encoded_sources = model.encode(token_sources(model, [4, 9]))
    else:
        encoded_sources = [model.encode([mel_source(model, seed)])[0] for seed in (0, 1)]
    start = model.architecture.start_id
    plain = Request(encoded_sources[1], (start, 7), OPTIONS, attention=HEADS)
    alone = engine.generate([plain])[0]
    assert alone.attention is not None
    assert alone.attention.shape == (3, len(alone.tokens), encoded_sources[1].length)
    torch.testing.assert_close(alone.attention.sum(-1), torch.ones(3, len(alone.tokens)))
    mate = Request(encoded_sources[0], (start,), replace(OPTIONS, max_new_tokens=5))
    drafted = replace(plain, draft=(*alone.tokens[:7], 3))
    for requests in ([mate, plain], [drafted], [mate, drafted]):
        again = engine.generate(requests)[-1]
        assert again.tokens == alone.tokens
        assert again.attention is not None
        torch.testing.assert_close(again.attention, alone.attention, atol=1e-5, rtol=0)


def test_an_unknown_head_is_refused(engine: Engine, marian: LoadedModel) -> None:
    encoded = marian.encode(token_sources(marian, [4]))[0]
    request = Request(encoded, (marian.architecture.start_id,), OPTIONS, attention=((99, 0),))
    with pytest.raises(RequestError, match="attention head"):
        engine.stream(request)
