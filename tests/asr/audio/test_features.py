"""Log-mel windows against openai-whisper's spectrogram of the whole input."""

from __future__ import annotations

from collections.abc import Iterator

import librosa
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from whisper.audio import log_mel_spectrogram
from whisper.audio import mel_filters as openai_mel_filters

from pipelines.asr.audio.features import (
    ChunkFeatures,
    FileFeatures,
    StreamFeatures,
    mel_filters,
)
from pipelines.errors import CheckpointError

WINDOW = 3000


def noise(seconds: float, seed: int = 0, *, growing: bool = False) -> NDArray[np.float32]:
    """Noise whose loudness jumps over ten orders of magnitude of power, or grows."""
    rng = np.random.default_rng(seed)
    count = int(seconds * 16_000)
    steps = rng.uniform(-5.0, -0.5, count // 8000 + 1)
    if growing:
        steps.sort()
    return (rng.standard_normal(count) * np.repeat(10.0**steps, 8000)[:count]).astype(np.float32)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_filters_are_librosas_bit_for_bit(n_mels: int) -> None:
    ours = mel_filters(n_mels)
    assert (
        ours.numpy().tobytes() == librosa.filters.mel(sr=16_000, n_fft=400, n_mels=n_mels).tobytes()
    )
    assert torch.equal(ours, openai_mel_filters("cpu", n_mels))


def test_other_numbers_of_mel_bands_are_errors() -> None:
    with pytest.raises(CheckpointError, match="needs 40 mel bands"):
        mel_filters(40)


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("seconds", [0.01, 0.0126, 0.3, 7.123, 30.0, 71.33])
def test_windows_equal_slices_of_openais_spectrogram(n_mels: int, seconds: float) -> None:
    samples = noise(seconds)
    whole = log_mel_spectrogram(samples, n_mels, padding=480_000)
    content = whole.shape[1] - WINDOW
    features = FileFeatures(samples, n_mels, WINDOW)
    for seek in {0, 1, 1234, 2900, content - 1, content // 2}:
        mel, size = features.window(seek)
        assert mel.shape == (n_mels, WINDOW)
        assert size == max(min(WINDOW, content - seek), 0)
        torch.testing.assert_close(mel[:, :size], whole[:, seek : seek + size], rtol=0, atol=1e-6)
        assert not mel[:, size:].any()
    torch.testing.assert_close(features.first_window(), whole[:, :WINDOW], rtol=0, atol=1e-6)


def test_a_shorter_window_of_the_config_is_used() -> None:
    samples = noise(25.0)
    whole = log_mel_spectrogram(samples, 80, padding=160_000)
    mel, size = FileFeatures(samples, 80, 1000).window(1900)
    assert (mel.shape, size) == ((80, 1000), 600)
    torch.testing.assert_close(mel[:, :600], whole[:, 1900:2500], rtol=0, atol=1e-6)


def test_less_than_a_frame_and_silence() -> None:
    assert FileFeatures(np.zeros(1, np.float32), 80, WINDOW).window(0)[1] == 0
    mel, size = FileFeatures(np.zeros(16_000, np.float32), 80, WINDOW).window(0)
    assert size == 100
    assert torch.equal(mel[:, :100], torch.full((80, 100), -1.5))


def blocks(
    samples: NDArray[np.float32], length: int, read: list[int]
) -> Iterator[NDArray[np.float32]]:
    """Blocks of one length; how many have been taken is kept in read[0]."""
    for start in range(0, len(samples), length):
        read[0] += 1
        yield samples[start : start + length]


@pytest.mark.parametrize("length", [37, 1600, 16_000, 500_000])
def test_a_stream_no_louder_later_equals_the_file(length: int) -> None:
    samples = noise(70.0 if length > 37 else 31.0)
    samples[8000:16_000] *= 1000 / np.abs(samples).max()  # nothing later is louder
    file = FileFeatures(samples, 80, WINDOW)
    stream = StreamFeatures(blocks(samples, length, [0]), 80, WINDOW)
    assert torch.equal(stream.first_window(), file.first_window())
    for seek in (0, 1000, 2990, 6800, 7000):
        expected, actual = file.window(seek), stream.window(seek)
        assert actual[1] == expected[1]
        torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=1e-6)
    assert stream.duration == file.duration


def test_a_streams_floor_follows_the_loudest_so_far() -> None:
    samples = noise(65.0, growing=True)
    stream = StreamFeatures(blocks(samples, 4000, [0]), 80, WINDOW)
    early, _ = stream.window(0)
    alone, _ = FileFeatures(samples[: 30 * 16_000 + 40], 80, WINDOW).window(0)
    torch.testing.assert_close(early, alone, rtol=0, atol=1e-6)
    stream.window(WINDOW)
    stream.window(2 * WINDOW)
    last, size = FileFeatures(samples, 80, WINDOW).window(2 * WINDOW)
    torch.testing.assert_close(stream.window(2 * WINDOW)[0], last, rtol=0, atol=1e-6)
    assert size == 500


@pytest.mark.slow
def test_a_stream_is_read_lazily_and_old_samples_are_dropped() -> None:
    read = [0]
    samples = noise(300.0)
    stream = StreamFeatures(blocks(samples, 16_000, read), 80, WINDOW)
    stream.window(0)
    assert read[0] == 31
    assert stream.duration is None
    for seek in range(0, 27_000, 2500):
        stream.window(seek)
    assert read[0] < 290
    assert len(stream._samples) <= 3 * WINDOW * 160


@pytest.mark.parametrize(
    ("seconds", "length"), [(0.5, 1000), (7.0, 1000), (7.01, 1100), (15.0, 1800), (29.0, 3000)]
)
def test_the_window_of_a_chunk_may_end_after_some_silence(seconds: float, length: int) -> None:
    samples = noise(seconds)
    frames = round(100 * seconds)
    chunk = (samples, 0, 0, frames, 80, WINDOW)
    whole, size = ChunkFeatures(*chunk).window(0)
    mel, same = ChunkFeatures(*chunk, follow=True).window(0)
    assert (size, same) == (frames, frames)
    assert torch.equal(mel, whole[:, :length])
    # Silence is 8 powers of ten below the loudest frame, each of which is a quarter.
    silence = whole[:, frames:]
    torch.testing.assert_close(silence, torch.full_like(silence, float(whole.max()) - 2))
