"""Audio that is in memory already: arrays, and streams of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AudioError

if TYPE_CHECKING:
    from av import AudioFrame

__all__ = [
    "SAMPLE_RATE",
    "Block",
    "Samples",
    "as_mono",
    "check_finite",
    "read_blocks",
    "resampled",
    "samples_of",
]

SAMPLE_RATE = 16_000  # Hz

Samples: TypeAlias = NDArray[np.float32]
"""Mono, 16 kHz, -1…1."""

Block: TypeAlias = "NDArray[Any] | tuple[int, NDArray[Any]]"
"""An array at 16 kHz, or a pair (rate in Hz, array)."""


def read_blocks(source: object) -> Iterator[Samples]:
    """The blocks of a stream as mono float32 at 16 kHz, lazily, resampled across their seams.

    Raises AudioError at once for what is no iterable, and later when a block is no audio, is not
    finite, or changes the sample rate.
    """
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise AudioError(
            f"cannot read audio from {type(source).__name__}: give a path, a binary file, "
            "an array, (rate, array), or an iterable of arrays"
        )
    return _read_blocks(source, "the audio stream")


def _read_blocks(source: Iterable[Any], name: str) -> Iterator[Samples]:
    blocks = _mono_blocks(source, name)
    first = next(blocks, None)
    if first is None:
        return
    rate = first[0]

    def same_rate() -> Iterator[Samples]:
        for block_rate, samples in chain([first], blocks):
            if block_rate != rate:
                raise AudioError(f"{name} changes its sample rate from {rate} to {block_rate} Hz")
            check_finite(samples, name)
            yield samples

    yield from resampled(same_rate(), rate)


def _mono_blocks(source: Iterable[Any], name: str) -> Iterator[tuple[int, Samples]]:
    """Blocks with fewer samples than channels lie as the longest block before them did."""
    channels, longest = None, 0
    for block in source:
        array = block[-1] if isinstance(block, tuple) and block else block
        if getattr(array, "ndim", 0) == 2 and max(array.shape) > longest and 0 not in array.shape:
            channels, longest = int(np.argmin(array.shape)), max(array.shape)
        yield as_mono(block, name, channels)


def resampled(blocks: Iterable[Samples], rate: int) -> Iterator[Samples]:
    """Mono float32 blocks from `rate` Hz to 16 kHz, by libav; as they are when they are that."""
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    from av import AudioFrame, AudioResampler

    resampler = AudioResampler("flt", "mono", SAMPLE_RATE)
    for samples in blocks:
        if not len(samples):
            continue
        frame = AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = rate
        yield from map(samples_of, resampler.resample(frame))
    yield from map(samples_of, resampler.resample(None))


def samples_of(frame: AudioFrame) -> Samples:
    """The samples of a mono float frame."""
    return frame.to_ndarray().reshape(-1).astype(np.float32, copy=False)


def check_finite(samples: Samples, name: str) -> None:
    """Raises AudioError naming `name` when a sample is NaN or infinite."""
    # The sum is finite only if all are (or, rarely, overflows): one pass without a mask.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(samples.sum(dtype=np.float64))
    if suspicious and not np.isfinite(samples).all():
        raise AudioError(
            f"{name} holds samples that are not numbers (NaN or infinite); "
            "repair or re-export the recording"
        )


def as_mono(block: Block, name: str, channels: int | None = None) -> tuple[int, Samples]:
    """(rate, mono float32 samples) of an array or a pair; the array itself where it is that.

    Signed integers are scaled by their full range, unsigned ones around its middle; channels
    are averaged. channels: which axis they are, where that is known. Raises AudioError naming
    `name` for anything that is no audio.
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
    if not (isinstance(rate, (int, np.integer)) and rate > 0):
        raise AudioError(f"{name} has an impossible sample rate: {rate!r}")
    if array.ndim == 2 and 0 in array.shape:
        return int(rate), np.zeros(0, np.float32)
    if array.ndim == 2:
        # Few channels, many samples, whichever way round.
        axis = int(np.argmin(array.shape)) if channels is None else channels
        return int(rate), _scaled(array).mean(axis=axis, dtype=np.float32)
    if array.ndim != 1:
        raise AudioError(f"{name} must have one or two dimensions, not {array.ndim}")
    return int(rate), _scaled(array)


def _scaled(array: NDArray[Any]) -> Samples:
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype=np.float32)
    full = float(2 ** (8 * array.dtype.itemsize - 1))
    scaled = array.astype(np.float32)
    if array.dtype.kind == "u":
        scaled -= np.float32(full)
    scaled /= np.float32(full)
    return scaled
