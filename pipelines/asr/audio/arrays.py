"""Audio in memory: conversion to mono float32, and the limits that all audio must meet."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AudioError, LongAudio
from pipelines.notices import notice

SAMPLE_RATE = 16_000  # Hz
MAX_BLOCK = 30 * SAMPLE_RATE  # samples processed at once: bounds temporary copies
MAX_AMPLITUDE = 16.0  # +24 dB. Larger samples are not floats in -1…1

# The lowest rate bounds the growth by resampling: 16 samples of each.
_MIN_RATE, _MAX_RATE = 1_000, 768_000  # Hz
_MAX_CHANNELS = 64
_CANCELLED = 0.01  # energy of the mean of two channels that are opposite, of that of the louder one

Samples: TypeAlias = NDArray[np.float32]
"""Mono, 16 kHz, -1…1."""

Block: TypeAlias = "NDArray[Any] | tuple[int, NDArray[Any]]"
"""An array at 16 kHz, or a pair (rate in Hz, array)."""


class LoudAudio(UserWarning):
    """Samples far outside -1…1 (beyond ±MAX_AMPLITUDE), which were scaled down or clipped."""


class SampleBuffer:
    """A recording that arrives in blocks, collected in one array that grows in place.

    Memory follows the samples that have arrived, not the length that a header announces.
    ndarray.resize reallocates, which for large arrays moves pages instead of copying them, so
    there is one copy even while it grows. numpy.concatenate would need two.

    Attributes:
        length: samples so far.
    """

    def __init__(self, name: str, max_duration_s: float | None = None) -> None:
        """
        Args:
            name: the recording's name in errors and warnings.
            max_duration_s: maximum duration (s); None: unlimited.
        """
        self._name, self._max_duration_s = name, max_duration_s
        self._array: Samples = np.empty(MAX_BLOCK, np.float32)
        self._peak, self._measured = 0.0, 0  # peak amplitude of the first `_measured` samples
        self.length = 0

    def append(self, block: Samples) -> None:
        """Add float32 samples at 16 kHz: mono [n], or two channels [n, 2].

        With the first of two channels the recording becomes [length, 2].

        Raises:
            AudioError: a sample is NaN or infinite. Samples are checked 30 seconds at a time.
            LongAudio: the recording is longer than `max_duration_s`.
        """
        end = self.length + len(block)
        if self._max_duration_s is not None and end > self._max_duration_s * SAMPLE_RATE:
            raise LongAudio.of(self._name, self._max_duration_s)
        if block.ndim > self._array.ndim:
            self._array = np.repeat(self._array[:, None], block.shape[1], axis=1)
        if end > len(self._array):
            size = max(end, len(self._array) * 9 // 8 + MAX_BLOCK)
            self._array.resize((size, *self._array.shape[1:]), refcheck=False)
        self._array[self.length : end] = block if block.ndim == self._array.ndim else block[:, None]
        self.length = end
        if end - self._measured >= MAX_BLOCK:
            self._measure()

    def _measure(self) -> None:
        new = self._array[self._measured : self.length]
        self._peak = max(self._peak, peak_amplitude(new, self._name))
        self._measured = self.length

    def loudness_warning(self) -> str | None:
        """The message of a LoudAudio warning; None if the recording is not too loud.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        self._measure()
        if self._peak <= MAX_AMPLITUDE:
            return None
        return (
            f"{self._name} has samples up to {self._peak:.3g}, far outside -1…1: "
            "the recording was scaled down to a peak of 1"
        )

    def finish(self) -> Samples:
        """The recording, [length] or [length, 2], divided by its peak if above MAX_AMPLITUDE.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        self._measure()
        self._array.resize((self.length, *self._array.shape[1:]), refcheck=False)
        if self._peak > MAX_AMPLITUDE:
            self._array /= np.float32(self._peak)
        return self._array


class Clipper:
    """Clips the blocks of a stream to ±MAX_AMPLITUDE and warns once with LoudAudio.

    A stream cannot be scaled by its peak, which is not known before its end.
    """

    def __init__(self, name: str) -> None:
        self._name, self._warned = name, False

    def clip(self, block: Samples) -> Samples:
        """The clipped block; `block` itself if no sample is too loud.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        peak = peak_amplitude(block, self._name)
        if peak <= MAX_AMPLITUDE:
            return block
        if not self._warned:
            self._warned = True
            notice(
                f"{self._name} has samples up to {peak:.3g}, far outside -1…1: "
                f"samples beyond ±{MAX_AMPLITUDE:g} are clipped",
                LoudAudio,
                stacklevel=2,
            )
        return block.clip(-MAX_AMPLITUDE, MAX_AMPLITUDE)


def peak_amplitude(samples: Samples, name: str) -> float:
    """The largest magnitude of samples [n]; 0.0 if n = 0.

    Raises:
        AudioError: a sample is NaN or infinite; the message begins with `name`.
    """
    if not len(samples):
        return 0.0
    peak = max(float(samples.max()), -float(samples.min()))  # both are NaN if any sample is
    if not np.isfinite(peak):
        raise AudioError(
            f"{name} holds samples that are not numbers (NaN or infinite); "
            "repair or re-export the recording"
        )
    return peak


def quietest_point(samples: Samples, length: int, step: int = 1) -> int:
    """Return the middle of the quietest part of samples [n], where speech may be cut.

    Args:
        samples: At least `length` of them.
        length: Samples of the part.
        step: Samples between the parts that are compared.
    """
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    return int(np.argmin((energy[length:] - energy[:-length])[::step])) * step + length // 2


def check_format(rate: int, channels: int, name: str) -> None:
    """Reject sample rates and channel counts that no recording has.

    Raises:
        AudioError: `rate` (Hz) or `channels` is out of bounds; the message begins with `name`.
    """
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise AudioError(
            f"{name} has a sample rate of {rate} Hz, which is not between {_MIN_RATE} and "
            f"{_MAX_RATE} Hz; repair or re-export the recording"
        )
    if channels > _MAX_CHANNELS:
        raise AudioError(
            f"{name} has {channels} channels, more than {_MAX_CHANNELS}; "
            "export it as mono or stereo"
        )


def as_mono(block: Block, name: str, channel_axis: int | None = None) -> tuple[int, Samples]:
    """Convert an array, or a pair (rate, array), to mono float32.

    Signed integers are scaled by their full range, unsigned ones around its middle; channels are
    averaged. Of two that cancel each other, the louder one is taken. A mono float32 array is
    returned as it is.

    Args:
        block: [n], [n, channels] or [channels, n].
        name: the source's name in errors.
        channel_axis: the axis of the channels; None: the shorter axis.

    Returns:
        The rate (Hz) and samples [n].

    Raises:
        AudioError: `block` is not audio, or its rate or channels are out of bounds.
    """
    rate: Any = SAMPLE_RATE
    array: Any = block
    if isinstance(block, tuple):
        if len(block) != 2:
            raise AudioError(f"{name} must be an array or a pair (rate in Hz, array)")
        rate, array = block
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        kind = getattr(array, "dtype", type(array).__name__)
        raise AudioError(f"{name} must hold arrays of floats or integers, not {kind}")
    if not isinstance(rate, (int, np.integer)):
        raise AudioError(f"{name} has an invalid sample rate: {rate!r}")
    check_format(int(rate), 1, name)
    if array.ndim == 2 and 0 in array.shape:
        return int(rate), np.zeros(0, np.float32)
    if array.ndim == 2:
        axis = int(np.argmin(array.shape)) if channel_axis is None else channel_axis
        check_format(int(rate), array.shape[axis], name)
        with np.errstate(over="ignore", invalid="ignore"):  # peak_amplitude rejects the result
            channels = _to_float(array)
            mono: Samples = channels.mean(axis=axis, dtype=np.float32)
            if array.shape[axis] == 2:
                energies = np.square(channels, dtype=np.float64).sum(axis=1 - axis)
                if cancels(energies, float(np.square(mono, dtype=np.float64).sum())):
                    mono = np.ascontiguousarray(channels.take(int(energies.argmax()), axis))
            return int(rate), mono
    if array.ndim != 1:
        raise AudioError(f"{name} must have one or two dimensions, not {array.ndim}")
    return int(rate), _to_float(array)


def cancels(energies: NDArray[np.float64], mixed: float) -> bool:
    """Return whether channels cancel each other: their mean is 20 dB below the louder one."""
    return bool(mixed < _CANCELLED * energies.max(initial=0.0))


def _to_float(array: NDArray[Any]) -> Samples:
    """Float32 in -1…1 for integers; floats are converted unscaled."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # peak_amplitude rejects the result
            return np.ascontiguousarray(array, dtype=np.float32)
    full_scale = float(2 ** (8 * array.dtype.itemsize - 1))
    scaled = array.astype(np.float32)
    if array.dtype.kind == "u":
        scaled -= np.float32(full_scale)
    scaled /= np.float32(full_scale)
    return scaled
