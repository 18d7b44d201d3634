"""Streams of audio blocks at any sample rate, read lazily as mono float32 at 16 kHz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.asr.audio.arrays import MAX_BLOCK, SAMPLE_RATE, Clipper, Samples, as_mono
from pipelines.errors import AudioError

if TYPE_CHECKING:
    from av import AudioFrame


def read_blocks(source: object, *, clip: bool = True) -> Iterator[Samples]:
    """Read a stream as mono float32 blocks at 16 kHz, resampled without seams between blocks.

    Args:
        source: an iterable of arrays or of pairs (rate in Hz, array).
        clip: limit samples to ±MAX_AMPLITUDE, with a LoudAudio warning.

    Yields:
        Samples [n], lazily.

    Raises:
        AudioError: immediately if `source` is not iterable; during iteration if a block is not
            audio, is not finite, or changes the sample rate.
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

    def checked() -> Iterator[Samples]:
        clipper = Clipper(name)
        for block_rate, samples in chain([first], blocks):
            if block_rate != rate:
                raise AudioError(f"{name} changes its sample rate from {rate} to {block_rate} Hz")
            yield clipper.clip(samples) if clip else samples

    yield from resample(checked(), rate)


def _mono_blocks(source: Iterable[Any], name: str) -> Iterator[tuple[int, Samples]]:
    """(rate, samples) of each block.

    The channel axis is that of the longest block so far: a short block may have fewer samples
    than channels.
    """
    channel_axis, longest = None, 0
    for block in source:
        array = block[-1] if isinstance(block, tuple) and block else block
        if getattr(array, "ndim", 0) == 2 and max(array.shape) > longest and 0 not in array.shape:
            channel_axis, longest = int(np.argmin(array.shape)), max(array.shape)
        yield as_mono(block, name, channel_axis)


def resample(blocks: Iterable[Samples], rate: int) -> Iterator[Samples]:
    """Resample mono float32 blocks from `rate` Hz to 16 kHz with libav; unchanged at 16 kHz."""
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    from av import AudioFrame, AudioResampler

    resampler = AudioResampler("flt", "mono", SAMPLE_RATE)
    for samples in blocks:
        for start in range(0, len(samples), MAX_BLOCK):
            part = samples[None, start : start + MAX_BLOCK]
            frame = AudioFrame.from_ndarray(part, format="flt", layout="mono")
            frame.sample_rate = rate
            yield from map(frame_samples, resampler.resample(frame))
    yield from map(frame_samples, resampler.resample(None))


def frame_samples(frame: AudioFrame, channel: int = 0) -> Samples:
    """The samples [n] of a mono float frame, or of a channel of a planar one."""
    samples: Samples = frame.to_ndarray()[channel].astype(np.float32, copy=False)
    return samples
