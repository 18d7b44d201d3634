"""Disguises for speech: a handful of synthetic voices sounds like many people in many rooms."""

from __future__ import annotations

import random

import numpy as np
import soxr
import torch
from scipy.signal import fftconvolve

RATE = 16_000
MELS = 80


def change_speed(samples: np.ndarray, factor: float) -> np.ndarray:
    """Faster or slower, pitch and formants along with it: another vocal tract."""
    return soxr.resample(samples, RATE * factor, RATE, quality="LQ").astype(np.float32)


def reverberate(
    samples: np.ndarray, decay: float, wet: float, generator: np.random.Generator
) -> np.ndarray:
    """A room whose echo falls by 60 dB in `decay` seconds, mixed in by `wet`."""
    n = int(decay * RATE)
    echo = generator.standard_normal(n) * 10 ** (-3 * np.arange(n) / n)
    echo /= np.sqrt(np.sum(echo**2))
    tail = fftconvolve(samples, echo.astype(np.float32))[: len(samples)]
    return ((1 - wet) * samples + wet * tail).astype(np.float32)


def noise(n: int, color: str, generator: np.random.Generator) -> np.ndarray:
    """n samples of noise with a root mean square of 1: white, pink (1/f) or brown (1/f²)."""
    white = generator.standard_normal(n, dtype=np.float32)
    power = {"white": 0.0, "pink": 0.5, "brown": 1.0}[color]
    if power == 0.0:
        return white
    spectrum = np.fft.rfft(white)
    spectrum /= np.maximum(np.arange(len(spectrum)), 3) ** power
    shaped = np.fft.irfft(spectrum, n).astype(np.float32)
    return shaped / (np.sqrt(np.mean(shaped**2)) + 1e-9)


def warp_mel(mel: torch.Tensor, r: random.Random) -> torch.Tensor:
    """Vocal tract length perturbation (Jaitly and Hinton 2013) on a log-mel [mels, frames]."""
    alpha = r.uniform(0.8, 1.22)
    position = (torch.arange(MELS, dtype=torch.float32) * alpha).clamp(max=MELS - 1.001)
    low = position.long()
    part = (position - low)[:, None]
    return mel[low] * (1 - part) + mel[low + 1] * part


def equalize(mel: torch.Tensor, r: random.Random) -> torch.Tensor:
    """Another microphone, another throat: a smooth gain over the mels, mostly within ±8 dB."""
    position = torch.arange(MELS, dtype=torch.float32) / MELS * torch.pi
    # 0.25 of a log-mel is 10 dB.
    gain = sum(r.gauss(0, 0.1) / k * torch.cos(k * position + r.uniform(0, 6.3)) for k in (1, 2, 3))
    shifted = mel + gain[:, None]
    return torch.maximum(shifted, shifted.max() - 2)


def limit_band(mel: torch.Tensor, r: random.Random) -> torch.Tensor:
    """A telephone: the mels above a cut-off fall to the floor."""
    mel = mel.clone()
    mel[r.randint(56, 72) :] = mel.min()
    return mel


def mask(mel: torch.Tensor, r: random.Random) -> torch.Tensor:
    """SpecAugment (Park et al. 2019): two bands of mels and a stretch of time a second at most."""
    mel = mel.clone()
    mean, frames = mel.mean(), mel.shape[1]
    for _ in range(2):
        width = r.randint(0, 12)
        start = r.randint(0, MELS - width)
        mel[start : start + width] = mean
    for _ in range(max(1, frames // 250)):
        width = r.randint(0, 25)
        start = r.randint(0, max(0, frames - width))
        mel[:, start : start + width] = mean
    return mel
