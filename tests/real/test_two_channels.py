"""Whisper base on recordings with two channels: two speakers, and one sound in both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines import TranscribeOptions, load_audio
from pipelines.asr import open_audio
from tests.real.conftest import Ours

WIZARD = "he began a confused complaint against the wizard who had vanished behind the curtain"
HORIZON = "the horizon seems extremely distant"


def plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum() or c == " ").strip()


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize(
    "source", [str, open_audio, lambda path: load_audio(path, keep_unlike=True)]
)
def test_no_sentence_of_two_channels_is_lost(
    source: Callable[[Path], object], batch_size: int, exact: Ours, shared_data: Path
) -> None:
    audio = source(shared_data / "speech-real" / "stereo_diarization.wav")
    options = TranscribeOptions(language="en", temperature=0.0, batch_size=batch_size)
    found = list(exact.transcriber.transcribe(audio, options, word_timestamps=True))  # type: ignore[arg-type]
    texts = [plain(segment.text) for segment in found]
    assert len(texts) == 2
    assert sum(text.startswith(WIZARD) for text in texts) == 1
    assert texts.count(HORIZON) == 1
    starts = [segment.start for segment in found]
    assert starts == sorted(starts)
    assert all(0 <= word.start <= word.end <= 5.1 for each in found for word in each.words)


def test_a_sentence_in_both_channels_is_written_once(exact: Ours, shared_data: Path) -> None:
    """One speaker in both, the other on the right alone."""
    both = load_audio(shared_data / "speech-real" / "stereo_diarization.wav", keep_unlike=True)
    left, right = both.T
    echo = np.stack([left, right + 0.5 * left], axis=1)
    options = TranscribeOptions(language="en", temperature=0.0, batch_size=8)
    once = [plain(s.text) for s in exact.transcriber.transcribe(both, options)]
    texts = [plain(s.text) for s in exact.transcriber.transcribe(echo, options)]
    assert len(texts) <= len(once)


def test_a_stereo_recording_of_one_sound_is_written_as_its_mix(
    exact: Ours, shared_data: Path
) -> None:
    path = next((shared_data / "speech").glob("jfk*.flac"))
    options = TranscribeOptions(temperature=0.0, batch_size=8)
    stereo = list(exact.transcriber.transcribe(path, options))
    mono = list(exact.transcriber.transcribe(load_audio(path), options))
    assert [segment.text for segment in stereo] == [segment.text for segment in mono]
    assert "".join(segment.text for segment in stereo)
