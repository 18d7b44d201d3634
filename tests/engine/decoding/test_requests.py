"""Invalid requests raise at once; unusual but valid ones work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pipelines.engine import Engine, FinishReason, GenerationOptions, LoadedModel, Request
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.errors import EngineError, OptionError, RequestError
from tests.engine.conftest import Folders, mel_source, token_sources

SOME = GenerationOptions(max_new_tokens=5)


def test_sources_the_model_cannot_take(
    marian: LoadedModel, whisper: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = marian.architecture.max_source_positions
    for source, message in [
        ([], "no tokens"),
        ([5] * (positions + 1), "longer than the model's"),
        ([marian.architecture.vocab_size], "outside the vocabulary"),
        ([-1], "outside the vocabulary"),
    ]:
        with pytest.raises(RequestError, match=message):
            marian.encode([source])
    for frames in (
        torch.zeros(80),
        torch.zeros(128, 3000),
        torch.zeros(80, 3002),
        torch.zeros(80, 0),
        torch.zeros(80, 11),
        torch.full((80, 3000), torch.nan),
    ):
        with pytest.raises(RequestError, match="audio"):
            whisper.encode([frames])
    # On a CPU sound is encoded one by one.
    mixed = whisper.encode([torch.zeros(80, 100), torch.zeros(80, 200)])
    assert [encoded.length for encoded in mixed] == [50, 100]
    monkeypatch.setattr(type(whisper.backend), "sources_at_once", None)
    with pytest.raises(RequestError, match="same number of frames"):
        whisper.encode([torch.zeros(80, 100), torch.zeros(80, 200)])
    assert marian.encode([]) == []


def test_prompts_the_model_cannot_take(
    engine: Engine, marian: LoadedModel, whisper: LoadedModel
) -> None:
    encoded = marian.encode(token_sources(marian, [4]))[0]
    positions = marian.architecture.max_target_positions
    for prompt, message in [
        ((), "at least the start token"),
        ((3,) * (positions + 1), "longer than the model's"),
        ((marian.architecture.vocab_size,), "outside the vocabulary"),
        ((-5,), "outside the vocabulary"),
    ]:
        with pytest.raises(RequestError, match=message):
            engine.stream(Request(encoded, prompt, SOME))
        with pytest.raises(RequestError, match=message):
            marian.score(encoded, prompt)
    with pytest.raises(RequestError, match="another model"):
        whisper.stream(Request(encoded, (5,), SOME))
    with pytest.raises(RequestError, match="token_probs"):
        engine.stream(Request(encoded, (5,), SOME, token_probs=((1, 5),)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": -1},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_options_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        GenerationOptions(**({"max_new_tokens": 5} | wrong))  # type: ignore[arg-type]


def test_no_new_tokens_generates_nothing(engine: Engine, marian: LoadedModel) -> None:
    encoded = marian.encode(token_sources(marian, [4]))[0]
    result = engine.generate([Request(encoded, (5,), GenerationOptions(max_new_tokens=0))])[0]
    assert (result.tokens, result.reason) == ((), FinishReason.LENGTH)


def test_one_new_token_and_several_ends(engine: Engine, marian: LoadedModel) -> None:
    encoded = marian.encode(token_sources(marian, [9]))[0]
    pad = marian.architecture.pad_id
    free = engine.generate([Request(encoded, (pad,), GenerationOptions(max_new_tokens=10))])[0]
    one = engine.generate([Request(encoded, (pad,), GenerationOptions(max_new_tokens=1))])[0]
    assert one.tokens == free.tokens[:1]
    ends = (free.tokens[4], free.tokens[2])
    first = min(free.tokens.index(end) for end in ends)
    ended = engine.generate(
        [Request(encoded, (pad,), GenerationOptions(max_new_tokens=10, eos_ids=ends))]
    )[0]
    assert ended.tokens == free.tokens[: first + 1]
    assert ended.reason is FinishReason.EOS


def test_generation_stops_where_the_positions_end(engine: Engine, marian: LoadedModel) -> None:
    encoded = marian.encode(token_sources(marian, [4]))[0]
    positions = marian.architecture.max_target_positions
    prompt = tuple([7] * (positions - 2))
    many = GenerationOptions(max_new_tokens=50)
    result = engine.generate([Request(encoded, prompt, many)])[0]
    assert len(result.tokens) == 3
    assert result.reason is FinishReason.LENGTH
    full = engine.generate([Request(encoded, (7,) * positions, many)])[0]
    assert len(full.tokens) == 1


def test_token_probs(engine: Engine, whisper: LoadedModel) -> None:
    encoded = whisper.encode([mel_source(whisper)])[0]
    start = whisper.architecture.start_id
    prompt, token_probs = (9, start, 40), ((1, 100), (2, 7), (0, 5))
    result = engine.generate([Request(encoded, prompt, SOME, token_probs=token_probs)])[0]
    expected = whisper.score(encoded, prompt).softmax(-1)
    assert result.token_probs == pytest.approx(
        [float(expected[position, token]) for position, token in token_probs], abs=1e-6
    )


def test_errors_of_a_closed_engine_and_an_unloaded_model(checkpoints: Folders) -> None:
    engine = Engine(device="cpu", compute_type="float32", threads=1)
    model = engine.load(checkpoints("marian:opus-mt-en-de"))
    encoded = model.encode(token_sources(model, [4]))[0]
    running = engine.stream(Request(encoded, (5,), GenerationOptions(max_new_tokens=50)))
    next(running)
    engine.unload(model)
    with pytest.raises(EngineError, match="unloaded"):
        running.result()
    with pytest.raises(EngineError, match="unloaded"):
        model.encode([[4]])
    with pytest.raises(EngineError, match="unloaded"):
        model.score(encoded, (5,))
    with pytest.raises(RequestError, match="no model that this engine has loaded"):
        engine.stream(Request(encoded, (5,), SOME))
    again = engine.load(checkpoints("marian:opus-mt-en-de"))
    assert engine.load(checkpoints("marian:opus-mt-en-de")) is again
    stream = engine.stream(
        Request(again.encode([[4]])[0], (5,), GenerationOptions(max_new_tokens=9))
    )
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.result()


def test_a_request_beside_an_unload_is_refused(
    checkpoints: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not join the batch of the former weights, which would then stay in memory."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(checkpoints("marian:opus-mt-en-de"))
        encoded = model.encode(token_sources(model, [4]))[0]
        submit = Scheduler.submit

        def submit_late(self: Scheduler, *args: Any) -> None:
            engine.unload(model)
            submit(self, *args)

        monkeypatch.setattr(Scheduler, "submit", submit_late)
        with pytest.raises(EngineError, match="unloaded"):
            model.stream(Request(encoded, (5,), SOME))
