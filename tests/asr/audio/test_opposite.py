"""Two channels of opposite sign, whose mean is silence, are heard."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from pipelines import SAMPLE_RATE, load_audio
from pipelines.asr.audio.decode import OppositeChannels


def stereo(left: float, right: float) -> np.ndarray:
    """Two seconds [samples, 2]."""
    noise = np.random.default_rng(0).normal(0, 0.1, 2 * SAMPLE_RATE).astype(np.float32)
    return np.stack([left * noise, right * noise], axis=1)


def test_the_louder_channel_of_an_array_is_taken() -> None:
    sound = stereo(1.0, -0.9)
    assert np.array_equal(load_audio(sound), sound[:, 0])
    assert np.array_equal(load_audio((SAMPLE_RATE, sound.T)), sound[:, 0])
    both = stereo(1.0, -0.5)
    assert np.array_equal(load_audio(both), both.mean(axis=1, dtype=np.float32))


def test_a_file_says_that_one_channel_is_read(shared_data: Path) -> None:
    path = shared_data / "cases" / "16_opposite.flac"
    with pytest.warns(OppositeChannels, match="opposite sign.* only the louder one is read"):
        heard = load_audio(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        channels = [load_audio(path, channel=channel) for channel in (0, 1)]
    assert any(np.array_equal(heard, each) for each in channels)
    assert np.abs(heard).max() > 0.05
