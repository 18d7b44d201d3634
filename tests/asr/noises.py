"""Ten sounds without speech, made from a seed: what a room is like while no one speaks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples

__all__ = ["NOISES", "noise"]

_Random = np.random.Generator


def noise(name: str, seconds: float, seed: int = 37) -> Samples:
    """One of NOISES, float32 [n] at 16 kHz."""
    random = np.random.default_rng([seed, list(NOISES).index(name)])
    made = NOISES[name](int(seconds * SAMPLE_RATE), random)
    return np.clip(made, -1, 1).astype(np.float32)


def _at_level(samples: np.ndarray, level_db: float) -> np.ndarray:
    """The samples with an RMS of `level_db`, relative to an amplitude of 1."""
    return samples / np.sqrt(np.mean(np.square(samples))) * 10 ** (level_db / 20)


def _colored(size: int, random: _Random, exponent: float) -> np.ndarray:
    """Noise whose power falls with frequency to the power of `exponent`; 0: white, 1: pink."""
    spectrum = np.fft.rfft(random.standard_normal(size))
    frequencies = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    return np.fft.irfft(spectrum / np.maximum(frequencies, 20.0) ** (exponent / 2), size)


def _time(size: int) -> np.ndarray:
    return np.arange(size) / SAMPLE_RATE


def _hum(size: int, random: _Random) -> np.ndarray:
    """Mains hum with its overtones."""
    t = _time(size)
    tones = (
        np.sin(2 * np.pi * 50 * k * t + random.uniform(0, 2 * np.pi)) / k**1.5 for k in range(1, 9)
    )
    return _at_level(np.sum(list(tones), axis=0), -35) + _at_level(_colored(size, random, 0), -65)


def _fan(size: int, random: _Random) -> np.ndarray:
    """Brown noise that blades modulate."""
    blades = 1 + 0.3 * np.sin(2 * np.pi * 23 * _time(size))
    return _at_level(_colored(size, random, 2) * blades, -32)


def _music(size: int, random: _Random) -> np.ndarray:
    """Chords of tones that decay, one every 0.4 s."""
    made, step = np.zeros(size), int(0.4 * SAMPLE_RATE)
    scale = 220 * 2 ** (np.array([0, 2, 4, 7, 9, 12, 14, 16]) / 12)
    for start in range(0, size, step):
        t = _time(min(2 * step, size - start))
        for pitch in random.choice(scale, 3):
            tone = sum(np.sin(2 * np.pi * pitch * k * t) / k**2 for k in (1, 2, 3))
            made[start : start + len(t)] += tone * np.exp(-4 * t)
    return _at_level(made, -25)


def _bursts(
    size: int,
    random: _Random,
    pause_s: tuple[float, float],
    burst: Callable[[_Random], np.ndarray],
) -> np.ndarray:
    """Short sounds with pauses between, over the noise of a room."""
    made = _at_level(_colored(size, random, 1), -65)
    at = int(random.uniform(*pause_s) * SAMPLE_RATE)
    while at < size:
        sound = burst(random)[: size - at]
        made[at : at + len(sound)] += sound
        at += len(sound) + int(random.uniform(*pause_s) * SAMPLE_RATE)
    return made


def _key(random: _Random) -> np.ndarray:
    """A key of a keyboard: a click, and a weaker one as it comes up."""
    made = np.zeros(int(0.12 * SAMPLE_RATE))
    for at, level in ((0.0, 0.15), (random.uniform(0.06, 0.09), 0.06)):
        t = _time(int(0.02 * SAMPLE_RATE))
        click = random.standard_normal(len(t)) * np.exp(-t / 0.003) * level
        start = int(at * SAMPLE_RATE)
        made[start : start + len(click)] += click
    return made


def _bang(random: _Random) -> np.ndarray:
    """A door that falls shut."""
    t = _time(int(0.6 * SAMPLE_RATE))
    thump = np.sin(2 * np.pi * random.uniform(60, 90) * t) + 0.5 * _colored(len(t), random, 2) / 20
    return 0.5 * np.clip(thump, -1, 1) * np.exp(-t / 0.12)


def _cough(random: _Random) -> np.ndarray:
    """One to three short breaths of noise between 300 and 3,000 Hz, without a tone."""
    parts = list[np.ndarray]()
    for _ in range(random.integers(1, 4)):
        size = int(random.uniform(0.15, 0.25) * SAMPLE_RATE)
        spectrum = np.fft.rfft(random.standard_normal(size))
        frequencies = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
        spectrum[(frequencies < 300) | (frequencies > 3000)] = 0
        t = _time(size)
        shape = np.minimum(1, t / 0.01) * np.exp(-t / 0.07)
        parts += [0.8 * np.fft.irfft(spectrum, size) * shape]
        parts += [np.zeros(int(random.uniform(0.1, 0.3) * SAMPLE_RATE))]
    return np.concatenate(parts)


NOISES: dict[str, Callable[[int, _Random], np.ndarray]] = {
    "digital silence": lambda size, random: np.zeros(size),
    "quiet room": lambda size, random: _at_level(_colored(size, random, 1), -60),
    "pink noise": lambda size, random: _at_level(_colored(size, random, 1), -30),
    "white noise": lambda size, random: _at_level(_colored(size, random, 0), -30),
    "mains hum": _hum,
    "fan": _fan,
    "music": _music,
    "typing": lambda size, random: _bursts(size, random, (0.02, 0.3), _key),
    "doors": lambda size, random: _bursts(size, random, (1, 5), _bang),
    "coughs": lambda size, random: _bursts(size, random, (1, 6), _cough),
}
