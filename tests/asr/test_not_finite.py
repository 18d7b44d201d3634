"""A model that computes NaN: the segments before it, then an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.asr import SegmentDone, Transcriber, TranscriptionInfo, load_audio
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.engine import EncodedSource, Engine
from pipelines.errors import EngineError, NumericalError

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"


@pytest.fixture(scope="module")
def demo() -> Iterator[Transcriber]:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield Transcriber("demo", engine=engine)


@pytest.fixture(scope="module")
def talk() -> Samples:
    return load_audio(SAMPLES / "talk.flac")[: 25 * SAMPLE_RATE]


def damage(transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch, calls: Sequence[int]) -> None:
    """Make the encoded windows with these numbers NaN, in every attempt. Numbers count from 0."""
    encode = transcriber.model.encode
    known: list[bytes] = []

    def damaged(windows: Sequence[Any], priority: int = 0) -> list[EncodedSource]:
        encoded_sources = encode(windows, priority)
        for window, encoded in zip(windows, encoded_sources, strict=True):
            if (key := torch.as_tensor(window).numpy().tobytes()) not in known:
                known.append(key)
            if known.index(key) in calls:
                with torch.inference_mode():
                    for values in encoded.values:
                        values.fill_(torch.nan)
        return encoded_sources

    monkeypatch.setattr(transcriber.model, "encode", damaged)


def followed(events: Iterator[Any]) -> tuple[list[Any], EngineError]:
    found: list[Any] = []
    with pytest.raises(EngineError) as raised:
        found.extend(event.segment for event in events if isinstance(event, SegmentDone))
    return found, raised.value


@pytest.mark.slow
def test_window_after_window(
    demo: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"language": "en", "temperature": 0.0, "batch_size": 1}
    whole = list(demo.transcribe(talk, **options))
    damage(demo, monkeypatch, [1])
    found, error = followed(demo.stream(talk, **options))
    assert isinstance(error, NumericalError)
    start = whole[len(found)].seek / 100
    assert 0 < start < 25
    assert found == whole[: len(found)] != []
    assert f"from {start:.1f} to " in str(error)
    assert "computed NaN" in str(error)
    assert "float32" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [0, 1])
def test_neighbours_are_recognized_as_before(
    demo: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    options = {"language": "en", "temperature": 0.0, "batch_size": 8, "chunk_s": 8.0}
    whole = list(demo.transcribe(talk, **options))
    seeks = sorted({segment.seek for segment in whole})
    assert len(seeks) > 2
    damage(demo, monkeypatch, [broken])
    found, error = followed(demo.stream(talk, **options))
    assert isinstance(error, NumericalError)
    assert f"from {seeks[broken] / 100:.1f} to " in str(error)
    expected = [segment for segment in whole if segment.seek != seeks[broken]]
    assert [(s.text, s.tokens, s.start, s.end) for s in found] == [
        (s.text, s.tokens, s.start, s.end) for s in expected
    ]


@pytest.mark.parametrize("batch_size", [1, 8])
def test_without_any_result_there_is_an_error(
    demo: Transcriber, talk: Samples, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    damage(demo, monkeypatch, range(100))
    speech = talk[: 4 * SAMPLE_RATE]
    with pytest.raises(NumericalError, match=r"from 0\.\d to 4\.0 s could not be recognized"):
        list(demo.transcribe(speech, batch_size=batch_size))


@pytest.mark.parametrize("batch_size", [1, 8])
def test_language_detection_fails_as_well(
    real: Transcriber, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    damage(real, monkeypatch, range(100))
    noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
    with pytest.raises(NumericalError, match="language could not be detected"):
        real.transcribe(noise, batch_size=batch_size).info  # noqa: B018
    with pytest.raises(NumericalError, match="language could not be detected"):
        real.detect_language(noise)
    assert real.transcribe(noise, language="en").info == TranscriptionInfo(
        "en", None, 1.0, duration_after_vad=1.0
    )
