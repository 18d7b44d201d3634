"""The Transcriber as an object of a program: options, closing, inputs, results, threads."""

from __future__ import annotations

import asyncio
import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from pipelines.asr import (
    Segment,
    TranscribeOptions,
    Transcriber,
    TranscriptionInfo,
    Word,
)
from pipelines.engine import Engine
from pipelines.errors import AudioError, EngineError, ModelError, ModelNotFound, OptionError
from tests.asr.conftest import Pair
from tests.asr.recordings import RECORDINGS, samples_of
from tests.fixtures.checkpoints import write_marian
from tests.fixtures.hub import Hub

RATE = 16_000
TINY = "openai/whisper-tiny"


@pytest.mark.slow
def test_a_closed_transcriber_says_so(multilingual: Path) -> None:
    with Transcriber(multilingual, device="cpu", compute_type="float32", threads=1) as own:
        engine, model = own.engine, own.model
        assert list(own.transcribe(np.zeros(1), language="en")) == []
    assert engine.models == ()
    own.close()  # again
    uses = [
        lambda: own.transcribe(np.zeros(1)),
        lambda: own.stream("missing.wav"),
        lambda: own.detect_language(np.zeros(1)),
        lambda: own.window_decoder("en", TranscribeOptions()),
        lambda: own.capabilities,
        lambda: own.model,
    ]
    for use in uses:
        with pytest.raises(EngineError, match="the transcriber was closed"):
            use()
    assert model not in engine.models


@pytest.mark.slow
def test_a_shared_engine_stays_open(multilingual: Path, engine: Engine) -> None:
    other = Transcriber(multilingual, engine=engine)
    with Transcriber(multilingual, engine=engine) as transcriber:
        assert transcriber.model is other.model
    with pytest.raises(EngineError, match="the transcriber was closed"):
        transcriber.transcribe(np.zeros(1))
    assert other.model in engine.models
    assert list(other.transcribe(np.zeros(1), language="en")) == []


@pytest.mark.slow
def test_a_transcription_under_way_fails_when_its_engine_is_closed(multilingual: Path) -> None:
    transcriber = Transcriber(multilingual, device="cpu", compute_type="float32", threads=1)
    noise = np.random.default_rng(0).normal(0, 0.1, 40 * RATE).astype(np.float32)
    events = transcriber.stream(
        noise, language="en", temperature=0.0, no_speech_threshold=None, batch_size=1
    )
    next(events), next(events)
    transcriber.close()
    with pytest.raises(EngineError, match="the engine was closed"):
        list(events)


@pytest.mark.slow
def test_a_window_after_the_engine_was_closed_fails(multilingual: Path) -> None:
    engine = Engine(device="cpu", compute_type="float32", threads=1)
    transcriber = Transcriber(multilingual, engine=engine)
    noise = np.random.default_rng(0).normal(0, 0.1, 40 * RATE).astype(np.float32)
    events = transcriber.stream(noise, language="en", temperature=0.0, batch_size=1)
    next(events)
    engine.close()
    with pytest.raises(EngineError, match="the engine was closed; make a new one"):
        list(events)


def test_a_model_that_cannot_be_loaded_leaves_no_engine_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Engine] = []
    close = Engine.close
    monkeypatch.setattr(Engine, "close", lambda engine: (closed.append(engine), close(engine)))
    marian = write_marian(tmp_path / "marian")
    with pytest.raises(ModelError, match="is a marian model, which translates text"):
        Transcriber(marian, device="cpu", compute_type="float32", threads=1)
    assert len(closed) == 1


def test_a_transcription_closed_before_it_began_has_no_info(fitted: Pair) -> None:
    samples = samples_of(RECORDINGS["german"])
    found = fitted.ours.transcribe(samples, temperature=0.0)
    found.close()
    for read in (lambda: found.info, lambda: found.language, lambda: found.warnings):
        with pytest.raises(EngineError, match="the transcription was closed before it began"):
            read()
    assert list(found) == []
    begun = fitted.ours.transcribe(samples, temperature=0.0)
    language = begun.language
    begun.close()
    assert begun.language == language
    assert list(begun) == []


def test_a_transcription_that_could_not_begin_has_no_info(fitted: Pair) -> None:
    def broken() -> Iterator[np.ndarray]:
        yield np.zeros(RATE, np.float32)
        raise OSError("unplugged")

    found = fitted.ours.transcribe(broken(), temperature=0.0)
    with pytest.raises(OSError, match="unplugged"):
        _ = found.info
    with pytest.raises(EngineError, match="or could not begin"):
        _ = found.info
    assert list(found) == []


def test_the_priority_of_the_options_reaches_the_engine(
    fitted: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    stream = Engine.stream
    monkeypatch.setattr(
        Engine,
        "stream",
        lambda engine, request: (asked.append(request.priority), stream(engine, request))[1],
    )
    samples = samples_of(RECORDINGS["german"])
    for overrides, expected in (({}, 2), ({"priority": 3}, 3)):
        list(fitted.ours.transcribe(samples, temperature=0.0, **overrides))
        assert set(asked) == {expected}
        asked.clear()


@pytest.mark.slow
def test_tensors_are_taken_like_arrays(fitted: Pair) -> None:
    samples = samples_of(RECORDINGS["german"])
    expected = list(fitted.ours.transcribe(samples, temperature=0.0))
    assert expected
    one = torch.from_numpy(samples.copy())
    for audio in (one, one[None], torch.stack([one, one]), (RATE, one), one.requires_grad_()):
        assert list(fitted.ours.transcribe(audio, temperature=0.0)) == expected
    german = fitted.ours.detect_language(samples)
    assert fitted.ours.detect_language(one) == german
    # Stored as 16-bit integers, and in a float type that NumPy lacks.
    whole = (one.detach() * 32767).to(torch.int16)
    as_numpy = list(fitted.ours.transcribe(whole.numpy(), temperature=0.0))
    assert list(fitted.ours.transcribe(whole, temperature=0.0)) == as_numpy
    half = one.detach().to(torch.bfloat16)
    as_floats = list(fitted.ours.transcribe(half.float().numpy(), temperature=0.0))
    assert list(fitted.ours.transcribe((RATE, half), temperature=0.0)) == as_floats
    with pytest.raises(AudioError, match="one or two dimensions"):
        fitted.ours.transcribe(one.detach()[None, None])


def test_results_pickle_and_can_be_read(fitted: Pair) -> None:
    found = fitted.ours.transcribe(
        samples_of(RECORDINGS["german"]), temperature=0.0, word_timestamps=True
    )
    results = [found.info, *found]
    assert len(results) > 1
    assert pickle.loads(pickle.dumps(results)) == results
    word = Word(" Good", 0.0, 0.5, 0.9)
    assert repr(word) == "Word(word=' Good', start=0.0, end=0.5, probability=0.9)"
    segment = Segment(0, 0, 0.0, 1.0, " Good", (1,), 0.0, -0.1, 1.0, 0.0, (word,))
    assert repr(segment).startswith("Segment(id=0, seek=0, start=0.0, end=1.0, text=' Good', ")
    assert repr(TranscriptionInfo("en", None, 1.0)).startswith("TranscriptionInfo(language='en'")


def test_from_asyncio(fitted: Pair) -> None:
    names = ["long", "german"]

    def text(name: str) -> str:
        sound = samples_of(RECORDINGS[name])
        return "".join(segment.text for segment in fitted.ours.transcribe(sound, temperature=0.0))

    async def both() -> list[str]:
        return await asyncio.gather(*(asyncio.to_thread(text, name) for name in names))

    expected = [text(name) for name in names]
    assert all(expected)
    assert asyncio.run(both()) == expected


@pytest.mark.slow
def test_a_model_is_downloaded_only_on_request(hub: Hub, multilingual: Path) -> None:
    hub.host(TINY, multilingual)
    options = {"device": "cpu", "compute_type": "float32", "threads": 1}
    with pytest.raises(ModelNotFound, match="tiny"):
        Transcriber("tiny", **options)
    assert hub.requests == []
    with Transcriber("tiny", download=True, **options) as transcriber:
        assert transcriber.capabilities.name == "tiny"
    assert "model.safetensors" in hub.fetched()
    requests = len(hub.requests)
    # What is on this machine is used as it is.
    Transcriber("tiny", download=True, **options).close()
    Transcriber("tiny", **options).close()
    assert len(hub.requests) == requests
    with pytest.raises((ModelNotFound, OptionError)):
        Transcriber("no-such-model", download=True, **options)
    for path in (
        Path("missing"),
        Path("openai/whisper-base"),
        "./missing",
        "~/missing",
        "/no/such",
    ):
        with pytest.raises(ModelNotFound, match="no model at"):
            Transcriber(path, download=True, **options)
    assert len(hub.requests) == requests


@pytest.mark.slow
def test_the_bytes_of_a_file_are_a_recording(fitted: Pair, tmp_path: Path) -> None:
    path = tmp_path / "german.wav"
    soundfile.write(path, samples_of(RECORDINGS["german"]), RATE)
    content = path.read_bytes()
    from_path, from_bytes, from_file = (
        list(fitted.ours.transcribe(source, temperature=0.0))
        for source in (path, content, io.BytesIO(content))
    )
    assert from_path
    assert from_path == from_bytes == from_file
    in_chunks = list(fitted.ours.transcribe(content, temperature=0.0, batch_size=2))
    assert in_chunks == list(fitted.ours.transcribe(path, temperature=0.0, batch_size=2))
