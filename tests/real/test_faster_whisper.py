"""In float32 Whisper base writes what faster-whisper writes.

Each program has a file of its own, so that a process holds the weights of one of them at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines import SAMPLE_RATE
from tests.formats.writers import write_ctranslate2
from tests.real.conftest import Ours, Recordings, Report, recorded


@pytest.fixture(scope="module")
def faster_whisper(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from faster_whisper import WhisperModel

    copied = ("tokenizer.json", "preprocessor_config.json")
    target = write_ctranslate2(folder, tmp_path_factory.mktemp("ct2") / "base", "float32", *copied)
    return WhisperModel(str(target), device="cpu", compute_type="float32", cpu_threads=1)


@pytest.mark.parametrize("name", recorded("voices", "book"))
def test_text_and_language_equal_faster_whisper(
    name: str, faster_whisper: Any, exact: Ours, recordings: Recordings, report: Report
) -> None:
    recording = recordings[name]
    segments, info = faster_whisper.transcribe(
        recording.samples,
        beam_size=1,
        temperature=0.0,
        compression_ratio_threshold=2.4,
        log_prob_threshold=-1.0,
        no_speech_threshold=0.6,
    )
    found = exact.find(recording)  # words would move the windows
    assert found.text == "".join(segment.text for segment in segments)
    assert found.language == info.language == recording.language
    report.say(f"text of {name}: {len(found.text.split())} words as faster-whisper's")


@pytest.mark.parametrize("name", ["book", "german"])
def test_languages_equal_faster_whisper(
    name: str, faster_whisper: Any, exact: Ours, recordings: Recordings
) -> None:
    samples = recordings[name].samples
    # A shorter window is padded with zeros there, and here as in openai-whisper with silence.
    assert len(samples) >= 30 * SAMPLE_RATE
    found, _, theirs = faster_whisper.detect_language(samples)
    assert found == recordings[name].language
    probs = exact.transcriber.detect_language(samples)
    for language, prob in theirs[:5]:
        assert probs[language] == pytest.approx(prob, abs=2e-3)


@pytest.mark.parametrize("choices", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}])
def test_penalties_equal_faster_whisper(
    choices: dict[str, Any], faster_whisper: Any, exact: Ours, recordings: Recordings
) -> None:
    recording = recordings["voices"]
    given = {"language": recording.language, "temperature": 0.0, **choices}
    theirs, _ = faster_whisper.transcribe(recording.samples, beam_size=1, **given)
    ours = exact.transcriber.transcribe(recording.samples, batch_size=1, **given)
    assert [segment.text for segment in ours] == [segment.text for segment in theirs]
    assert "".join(segment.text for segment in ours) != exact.find(recording).text
