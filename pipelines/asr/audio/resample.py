"""Streams of audio blocks at any sample rate, read lazily as mono float32 at 16 kHz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, STEP, Clipper, Samples, as_mono
from pipelines.errors import AudioError

if TYPE_CHECKING:
    from av import AudioFrame

__all__ = ["read_blocks", "resampled", "samples_of"]


def read_blocks(source: object, *, clip: bool = True) -> Iterator[Samples]:
    """The blocks of a stream as mono float32 at 16 kHz, lazily, resampled across their seams.

    Args:
        source: an iterable of arrays or of pairs (rate in Hz, array).
        clip: limit samples to ±LOUDEST, with a LoudAudio warning.

    Raises:
        AudioError: at once when `source` is not iterable, and later when a block is not audio,
            is not finite, or changes the sample rate.
    """
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise AudioError(
            f"cannot read audio from {type(source).__name__}: give a path, a binary file, "
            "an array, (rate, array), or an iterable of arrays"
        )
    return _read_blocks(source, "the audio stream", clip)


def _read_blocks(source: Iterable[Any], name: str, clip: bool) -> Iterator[Samples]:
    blocks = _mono_blocks(source, name)
    first = next(blocks, None)
    if first is None:
        return
    rate = first[0]

    def same_rate() -> Iterator[Samples]:
        clipper = Clipper(name)
        for block_rate, samples in chain([first], blocks):
            if block_rate != rate:
                raise AudioError(f"{name} changes its sample rate from {rate} to {block_rate} Hz")
            yield clipper.clip(samples) if clip else samples

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
        for start in range(0, len(samples), STEP):
            piece = samples[None, start : start + STEP]
            frame = AudioFrame.from_ndarray(piece, format="flt", layout="mono")
            frame.sample_rate = rate
            yield from map(samples_of, resampler.resample(frame))
    yield from map(samples_of, resampler.resample(None))


def samples_of(frame: AudioFrame) -> Samples:
    """The samples of a mono float frame."""
    return frame.to_ndarray().reshape(-1).astype(np.float32, copy=False)
