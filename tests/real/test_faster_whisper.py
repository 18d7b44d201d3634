"""In float32 Whisper base writes what faster-whisper writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines import SAMPLE_RATE
from tests.formats.writers import write_ctranslate2
from tests.real.conftest import Ours, Recordings, Report, Weights, recorded


@pytest.fixture(scope="module")
def faster_whisper(
    weights: Weights, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Any]:
    """What loads the model of faster-whisper, in float32."""
    from faster_whisper import WhisperModel

    copied = ("tokenizer.json", "preprocessor_config.json")
    weights.drop()
    target = write_ctranslate2(folder, tmp_path_factory.mktemp("ct2") / "base", "float32", *copied)
    load = partial(WhisperModel, str(target), "cpu", compute_type="float32", cpu_threads=1)
    return lambda: weights.of("faster-whisper", load)


@pytest.mark.parametrize("name", recorded("voices", "book"))
def test_text_and_language_equal_faster_whisper(
    name: str,
    faster_whisper: Callable[[], Any],
    exact: Ours,
    recordings: Recordings,
    report: Report,
) -> None:
    recording = recordings[name]
    found = exact.find(recording)  # words would move the windows
    segments, info = faster_whisper().transcribe(
        recording.samples,
        beam_size=1,
        temperature=0.0,
        compression_ratio_threshold=2.4,
        log_prob_threshold=-1.0,
        no_speech_threshold=0.6,
    )
    assert found.text == "".join(segment.text for segment in segments)
    assert found.language == info.language == recording.language
    report.say(f"text of {name}: {len(found.text.split())} words as faster-whisper's")


@pytest.mark.parametrize("name", ["book", "german"])
def test_languages_equal_faster_whisper(
    name: str, faster_whisper: Callable[[], Any], exact: Ours, recordings: Recordings
) -> None:
    samples = recordings[name].samples
    # A shorter window is padded with zeros there, and here as in openai-whisper with silence.
    assert len(samples) >= 30 * SAMPLE_RATE
    probs = exact.transcriber.detect_language(samples)
    found, _, theirs = faster_whisper().detect_language(samples)
    assert found == recordings[name].language
    for language, prob in theirs[:5]:
        assert probs[language] == pytest.approx(prob, abs=2e-3)


@pytest.mark.parametrize("choices", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}])
def test_penalties_equal_faster_whisper(
    choices: dict[str, Any], faster_whisper: Callable[[], Any], exact: Ours, recordings: Recordings
) -> None:
    recording = recordings["voices"]
    given = {"language": recording.language, "temperature": 0.0, **choices}
    segments = exact.transcriber.transcribe(recording.samples, batch_size=1, **given)
    ours = [segment.text for segment in segments]
    assert "".join(ours) != exact.find(recording).text
    theirs, _ = faster_whisper().transcribe(recording.samples, beam_size=1, **given)
    assert ours == [segment.text for segment in theirs]
