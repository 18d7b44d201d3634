"""Loud parts of a recording that the detector took for silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples

_FRAME = SAMPLE_RATE // 20  # samples of a level: 50 ms
_FRAMES_PER_S = 20
_FLOOR = 1e-3  # RMS of sound: -60 dB
# Speech has frames within 10 dB of the loudest ones, and between syllables others far below;
# hum, noise and held tones have an even level.
_NEAR_DB, _SWING_DB = 10.0, 12.0
_LOUDEST, _SPOKEN = 95.0, 75.0  # percentiles of the levels of all sound, and of the recognized
_MIN_S = 5.0


class LeftOutSound:
    """Measures how much of a recording is as loud as speech, and was left out as silence.

    Attributes:
        duration_s: Seconds of the recording so far.
    """

    def __init__(self) -> None:
        self._levels: list[NDArray[np.float32]] = []  # RMS of frames
        self._rest = np.zeros(0, np.float32)
        self._kept: list[tuple[float, float]] = []
        self.duration_s = 0.0

    def measured(self, blocks: Iterable[Samples]) -> Iterator[Samples]:
        """Pass on blocks [n] at 16 kHz, and measure them."""
        for block in blocks:
            samples = np.concatenate([self._rest, block])
            whole = len(samples) // _FRAME * _FRAME
            self._rest = samples[whole:].copy()
            frames = samples[:whole].reshape(-1, _FRAME)
            self._levels.append(np.sqrt(np.mean(np.square(frames), axis=1)))
            self.duration_s += len(block) / SAMPLE_RATE
            yield block

    def keep(self, start_s: float, end_s: float) -> None:
        """Note that a part of the recording is recognized."""
        self._kept.append((start_s, end_s))

    @property
    def seconds(self) -> float:
        """Seconds of the parts that were left out although they sound like speech.

        They are a whole number of seconds with syllables: loud frames, and much quieter ones. 0 if
        there are few, or if most of those of the recording were recognized.
        """
        levels = np.concatenate([np.zeros(0, np.float32), *self._levels])
        levels = levels[: len(levels) // _FRAMES_PER_S * _FRAMES_PER_S]
        if not len(levels):
            return 0.0
        decibels = 20 * np.log10(np.maximum(levels, _FLOOR / 10))
        seconds = decibels.reshape(-1, _FRAMES_PER_S)
        kept = np.zeros(len(seconds), bool)
        for start_s, end_s in self._kept:
            kept[int(start_s) : int(np.ceil(end_s))] = True
        loudest = np.percentile(decibels, _LOUDEST)
        if kept.any():  # Long pauses have little of it.
            loudest = max(loudest, np.percentile(seconds[kept], _SPOKEN))
        loud = max(loudest - _NEAR_DB, 20 * np.log10(_FLOOR))
        swing = np.percentile(seconds, 90, axis=1) - np.percentile(seconds, 10, axis=1)
        syllables = (seconds >= loud).any(axis=1) & (swing >= _SWING_DB)
        left_out, heard = int((syllables & ~kept).sum()), int((syllables & kept).sum())
        return float(left_out) if left_out >= max(_MIN_S, heard) else 0.0
