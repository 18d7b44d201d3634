"""Floats far outside -1…1 are scaled or clipped with a warning; slight overs are kept."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from pipelines.asr.audio.arrays import LoudAudio
from pipelines.asr.audio.decode import load_audio
from pipelines.asr.audio.features import FileFeatures, StreamFeatures
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.errors import AudioError

RATE = 16_000


def tone(peak: float, rate: int = RATE) -> NDArray[np.float64]:
    wave = np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    return wave / np.abs(wave).max() * peak


def float_wav(
    path: Path, samples: NDArray[np.float64], rate: int = RATE, double: bool = False
) -> Path:
    soundfile.write(path, samples, rate, subtype="DOUBLE" if double else "FLOAT")
    return path


@pytest.mark.parametrize("peak", [17.0, 32_767.0, 1e20, 1e30])
def test_loud_recordings_are_scaled_by_their_peak(tmp_path: Path, peak: float) -> None:
    path = float_wav(tmp_path / "loud.wav", tone(peak))
    sources = {
        r"loud\.wav": lambda: path,
        "the audio array": lambda: tone(peak),
        "the audio stream": lambda: iter(np.array_split(tone(peak), 7)),
    }
    for name, source in sources.items():
        with pytest.warns(LoudAudio, match=f"{name} has samples up to .* scaled down") as said:
            samples = load_audio(source())
        assert len(said) == 1
        np.testing.assert_allclose(samples, tone(1.0), atol=1e-6)
        mel, _ = FileFeatures(samples, 80, 3000).window(0)
        assert torch.isfinite(mel).all()


def test_the_callers_array_is_not_modified() -> None:
    samples = tone(1000.0).astype(np.float32)
    kept = samples.copy()
    with pytest.warns(LoudAudio):
        load_audio(samples)
    np.testing.assert_array_equal(samples, kept)


def test_loud_resampled_audio_is_scaled(tmp_path: Path) -> None:
    path = float_wav(tmp_path / "loud.wav", tone(1e30, 44_100), 44_100)
    for source in (path, (44_100, tone(1e30, 44_100))):
        with pytest.warns(LoudAudio, match="1e"):
            samples = load_audio(source)
        assert float(np.abs(samples).max()) == 1.0


@pytest.mark.parametrize("peak", [1.2, 15.9])
def test_slight_overs_are_not_scaled(tmp_path: Path, peak: float) -> None:
    samples = tone(peak).astype(np.float32)
    assert load_audio(samples) is samples
    path = float_wav(tmp_path / "over.wav", tone(peak))
    np.testing.assert_array_equal(load_audio(path), samples)
    np.testing.assert_array_equal(np.concatenate(list(read_blocks([samples]))), samples)


def test_loud_streams_are_clipped_with_one_warning() -> None:
    quiet, loud = tone(0.5).astype(np.float32), tone(1e20).astype(np.float32)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        blocks = list(read_blocks([quiet, loud, quiet, loud]))
    assert [one.category for one in said] == [LoudAudio]
    assert "the audio stream has samples up to 1e+20" in str(said[0].message)
    np.testing.assert_array_equal(blocks[0], quiet)
    assert [float(np.abs(block).max()) for block in blocks[1::2]] == [16.0, 16.0]
    mel, _ = StreamFeatures(iter(blocks), 80, 3000).window(0)
    assert torch.isfinite(mel).all()


def test_a_loud_microphone_is_clipped_with_a_warning() -> None:
    voice = VoiceActivity()
    with pytest.warns(LoudAudio, match="clipped"):
        voice.feed(tone(1e20).astype(np.float32))
    assert np.isfinite(voice.level)
    voice.feed(tone(1e20).astype(np.float32))  # a second warning would be an error


@pytest.mark.parametrize("rate", [RATE, 44_100])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_files_with_nan_samples_are_errors(tmp_path: Path, rate: int, wrong: float) -> None:
    samples = tone(0.5, rate)
    samples[777] = wrong
    path = float_wav(tmp_path / "broken.wav", samples, rate)
    with pytest.raises(AudioError, match=r"broken\.wav holds samples that are not numbers"):
        load_audio(path)


def test_doubles_beyond_float32_are_errors(tmp_path: Path) -> None:
    path = float_wav(tmp_path / "double.wav", tone(1e300), double=True)
    for source in (path, tone(1e300), np.stack([tone(1e38), tone(1e300)])):
        with pytest.raises(AudioError, match="not numbers"):
            load_audio(source)
