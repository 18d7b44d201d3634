"""Two channels: mixed where they are alike, kept where they hold different sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.channels import mixed, separate_unlike
from pipelines.asr.audio.decode import load_audio, open_audio
from pipelines.asr.audio.isolated import load_audio_isolated

RATE = 16_000


def turns(seconds: int, on: float, seed: int) -> Samples:
    """Return noise that is loud for every other second, from `on`, with a faint floor."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.1, seconds * RATE)
    at = np.arange(len(noise)) / RATE
    return (noise * np.where((at + on) % 2 < 1, 1.0, 0.01)).astype(np.float32)


def call(seconds: int) -> Samples:
    """Return two channels [n, 2] whose speakers take turns."""
    return np.stack([turns(seconds, 0, 1), turns(seconds, 1, 2)], axis=1)


def music(seconds: int) -> Samples:
    """Return two channels [n, 2] of one source, of other loudness and with noise of their own."""
    one = turns(seconds, 0, 1)
    return np.stack([one, 0.6 * one + turns(seconds, 0, 3) * 0.3], axis=1).astype(np.float32)


def blocks(recording: Samples, size: int) -> Iterator[Samples]:
    return (recording[start : start + size] for start in range(0, len(recording), size))


@pytest.mark.parametrize("size", [700, 16_000, 1_000_000])
def test_alike_channels_are_mixed_sample_for_sample(size: int) -> None:
    recording = music(37)
    made = list(separate_unlike(blocks(recording, size)))
    assert {block.ndim for block in made} == {1}
    np.testing.assert_array_equal(np.concatenate(made), mixed(recording))


@pytest.mark.parametrize("size", [700, 16_000, 1_000_000])
def test_only_the_part_with_different_sound_is_kept_apart(size: int) -> None:
    recording = np.concatenate([music(30), call(30), music(30)])
    made = list(separate_unlike(blocks(recording, size)))
    assert sum(map(len, made)) == len(recording)
    apart = [block.ndim == 2 for block in made]
    begin = sum(len(b) for b in made[: apart.index(True)])
    end = begin + sum(len(b) for b in made if b.ndim == 2)
    assert apart == sorted(apart[: apart.index(True)]) + [True] * sum(apart) + [False] * (
        len(apart) - apart.index(True) - sum(apart)
    )
    assert 20 * RATE <= begin <= 32 * RATE
    assert 58 * RATE <= end <= 70 * RATE
    kept = np.concatenate([b for b in made if b.ndim == 2])
    np.testing.assert_array_equal(kept, recording[begin:end])


def test_a_channel_without_sound_and_mono_change_nothing() -> None:
    one = turns(25, 0, 1)
    silent = np.stack([one, np.zeros_like(one)], axis=1)
    assert {block.ndim for block in separate_unlike([silent])} == {1}
    hum = np.stack([one, np.full_like(one, 0.0005)], axis=1)
    assert {block.ndim for block in separate_unlike([hum])} == {1}
    mono = list(blocks(one, 4000))
    assert all(a is b for a, b in zip(separate_unlike(mono), mono, strict=True))
    assert list(separate_unlike([])) == []


def test_channels_may_be_judged_again() -> None:
    recording = np.concatenate([music(30), call(30), music(30)])
    once = list(separate_unlike([recording]))
    whole = np.concatenate([b if b.ndim == 2 else np.stack([b, b], axis=1) for b in once])
    again = list(separate_unlike([whole]))
    assert [b.shape for b in again] == [b.shape for b in once]


def test_files_keep_unlike_channels_on_request(tmp_path: Path) -> None:
    recording: NDArray[np.float32] = call(12)
    path, alike = tmp_path / "call.wav", tmp_path / "film.wav"
    soundfile.write(path, recording, RATE)
    soundfile.write(alike, music(12), RATE)
    assert load_audio(path).ndim == 1
    kept = load_audio(path, keep_unlike=True)
    np.testing.assert_allclose(kept, recording, atol=1e-4)
    np.testing.assert_array_equal(kept, load_audio_isolated(path, keep_unlike=True))
    np.testing.assert_array_equal(kept, np.concatenate(list(open_audio(path))))
    np.testing.assert_array_equal(kept, load_audio(path.read_bytes(), keep_unlike=True))
    for array in (recording, recording.T, (RATE, recording)):
        np.testing.assert_array_equal(load_audio(array, keep_unlike=True), recording)
    assert load_audio_isolated(path).ndim == 1
    film = load_audio(alike, keep_unlike=True)
    np.testing.assert_allclose(film, load_audio(alike), atol=1e-6)
