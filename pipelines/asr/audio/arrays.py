"""Audio in memory: arrays, streams of them, and the bounds that all audio is held to."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AudioError, LongAudio
from pipelines.notices import notice

__all__ = [
    "LOUDEST",
    "SAMPLE_RATE",
    "STEP",
    "Block",
    "Clipper",
    "LoudAudio",
    "SampleBuffer",
    "Samples",
    "as_mono",
    "check_format",
    "peak_of",
]

SAMPLE_RATE = 16_000  # Hz
STEP = 30 * SAMPLE_RATE  # samples handled at once: bounds temporary copies
LOUDEST = 16.0  # +24 dB. A recording with larger samples is not one of floats in -1…1

# The lowest rate bounds what resampling makes of a file: 16 samples of each.
_LOWEST_RATE, _HIGHEST_RATE = 1_000, 768_000  # Hz
_MOST_CHANNELS = 64

Samples: TypeAlias = NDArray[np.float32]
"""Mono, 16 kHz, -1…1."""

Block: TypeAlias = "NDArray[Any] | tuple[int, NDArray[Any]]"
"""An array at 16 kHz, or a pair (rate in Hz, array)."""


class LoudAudio(UserWarning):
    """Samples far outside -1…1 (beyond ±LOUDEST), which were scaled down or clipped."""


class SampleBuffer:
    """A recording that arrives in blocks, in one array grown in place.

    Memory follows what has arrived, not what a header announces. ndarray.resize reallocates,
    which for large arrays moves pages instead of copying them, so even while it grows there is
    one copy. numpy.concatenate would need two.
    """

    def __init__(self, name: str, longest_s: float | None = None) -> None:
        """
        Args:
            name: what errors and warnings call the recording.
            longest_s: more seconds than this are refused; None: any number is taken.
        """
        self._name, self._longest_s = name, longest_s
        self._array = np.empty(STEP, np.float32)
        self._peak, self._measured = 0.0, 0  # the largest magnitude among the first so many
        self.length = 0  # samples

    def append(self, block: Samples) -> None:
        """Add mono float32 samples [n] at 16 kHz.

        Raises:
            AudioError: a sample is NaN or infinite. Samples are looked at 30 seconds at a time.
            LongAudio: the recording is longer than `longest_s`.
        """
        end = self.length + len(block)
        if self._longest_s is not None and end > self._longest_s * SAMPLE_RATE:
            raise LongAudio.of(self._name, self._longest_s)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) * 9 // 8 + STEP), refcheck=False)
        self._array[self.length : end] = block
        self.length = end
        if end - self._measured >= STEP:
            self._measure()

    def _measure(self) -> None:
        new = self._array[self._measured : self.length]
        self._peak = max(self._peak, peak_of(new, self._name))
        self._measured = self.length

    def loudness_warning(self) -> str | None:
        """What LoudAudio says of the recording; None where it is not too loud.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        self._measure()
        if self._peak <= LOUDEST:
            return None
        return (
            f"{self._name} has samples up to {self._peak:.3g}, far outside -1…1: "
            "the recording was scaled down to a peak of 1"
        )

    def finish(self) -> Samples:
        """The recording [length], divided by its peak where that is above LOUDEST.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        self._measure()
        self._array.resize(self.length, refcheck=False)
        if self._peak > LOUDEST:
            self._array /= np.float32(self._peak)
        return self._array


class Clipper:
    """Limits the blocks of a stream to ±LOUDEST, with a LoudAudio warning at the first louder one.

    What is to come of a stream is not known, so it cannot be scaled by its peak.
    """

    def __init__(self, name: str) -> None:
        self._name, self._warned = name, False

    def clip(self, block: Samples) -> Samples:
        """The block, itself where nothing in it is too loud.

        Raises:
            AudioError: a sample is NaN or infinite.
        """
        peak = peak_of(block, self._name)
        if peak <= LOUDEST:
            return block
        if not self._warned:
            self._warned = True
            notice(
                f"{self._name} has samples up to {peak:.3g}, far outside -1…1: "
                f"what is beyond ±{LOUDEST:g} is clipped",
                LoudAudio,
                stacklevel=2,
            )
        return block.clip(-LOUDEST, LOUDEST)


def peak_of(samples: Samples, name: str) -> float:
    """The largest magnitude among samples [n]; 0.0 of none.

    Raises:
        AudioError: a sample is NaN or infinite; the message names `name`.
    """
    if not len(samples):
        return 0.0
    peak = max(float(samples.max()), -float(samples.min()))  # both are NaN where a sample is
    if not np.isfinite(peak):
        raise AudioError(
            f"{name} holds samples that are not numbers (NaN or infinite); "
            "repair or re-export the recording"
        )
    return peak


def check_format(rate: int, channels: int, name: str) -> None:
    """Refuse sample rates and numbers of channels that no recording has.

    Raises:
        AudioError: `rate` (Hz) or `channels` is out of bounds; the message names `name`.
    """
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise AudioError(
            f"{name} has a sample rate of {rate} Hz, which is not between {_LOWEST_RATE} and "
            f"{_HIGHEST_RATE} Hz; repair or re-export the recording"
        )
    if channels > _MOST_CHANNELS:
        raise AudioError(
            f"{name} has {channels} channels, more than {_MOST_CHANNELS}; "
            "export it as mono or stereo"
        )


def as_mono(block: Block, name: str, channels: int | None = None) -> tuple[int, Samples]:
    """(rate, mono float32 samples) of an array or a pair; the array itself where it is that.

    Signed integers are scaled by their full range, unsigned ones around its middle; channels
    are averaged. channels: which axis they are, where that is known. Raises AudioError naming
    `name` for anything that is no audio, and for rates and channels that no recording has.
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
        raise AudioError(f"{name} has an impossible sample rate: {rate!r}")
    check_format(int(rate), 1, name)
    if array.ndim == 2 and 0 in array.shape:
        return int(rate), np.zeros(0, np.float32)
    if array.ndim == 2:
        # Few channels, many samples, whichever way round.
        axis = int(np.argmin(array.shape)) if channels is None else channels
        check_format(int(rate), array.shape[axis], name)
        with np.errstate(over="ignore", invalid="ignore"):  # peak_of refuses what comes of it
            return int(rate), _scaled(array).mean(axis=axis, dtype=np.float32)
    if array.ndim != 1:
        raise AudioError(f"{name} must have one or two dimensions, not {array.ndim}")
    return int(rate), _scaled(array)


def _scaled(array: NDArray[Any]) -> Samples:
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # peak_of refuses what comes of it
            return np.ascontiguousarray(array, dtype=np.float32)
    full = float(2 ** (8 * array.dtype.itemsize - 1))
    scaled = array.astype(np.float32)
    if array.dtype.kind == "u":
        scaled -= np.float32(full)
    scaled /= np.float32(full)
    return scaled
