"""Two channels of a recording: where they hold different sound, and where one mix is enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples, quietest_point

_WINDOW = 10 * SAMPLE_RATE  # samples that are judged at once
_CUT_WITHIN = 2 * SAMPLE_RATE  # a window ends at the quietest point of its last two seconds
_FRAME = SAMPLE_RATE // 20  # samples of a value of the envelope: 50 ms
_MAX_CORRELATION = 0.5  # of the envelopes of channels that are recognized one by one
_MIN_LEVEL = 1e-3  # RMS of a channel with sound: -60 dB
_MIN_SHARE = 0.05  # of the RMS of the louder channel: -26 dB


def separate_unlike(blocks: Iterable[Samples]) -> Iterator[Samples]:
    """Mix two channels except where they hold different sound.

    Each window of some 10 s is judged by itself. Channels hold different sound if both are audible
    and their envelopes correlate by less than 0.5, as in a call with one speaker on each.

    Args:
        blocks: Float32 at 16 kHz: mono [n], or two channels [n, 2].

    Yields:
        Mono [n] as it was or mixed, or two unlike channels [n, 2].
    """
    pending: list[Samples] = []
    length = 0
    for block in blocks:
        if block.ndim == 1:
            if length:
                yield _judged(np.concatenate(pending))
                pending, length = [], 0
            yield block
            continue
        for start in range(0, len(block), _WINDOW):
            pending.append(block[start : start + _WINDOW])
            length += len(pending[-1])
            while length >= _WINDOW:
                window = np.concatenate(pending)
                end = _quietest(window)
                yield _judged(window[:end])
                pending, length = [window[end:]], length - end
    if length:
        yield _judged(np.concatenate(pending))


def mixed(block: Samples) -> Samples:
    """Return the mean of the channels of a block [n, 2]; a block [n] unchanged."""
    return block if block.ndim == 1 else block.mean(axis=1, dtype=np.float32)


def _judged(window: Samples) -> Samples:
    """Return a window [n, 2] as it is if its channels are unlike, else mixed."""
    levels = _envelopes(window)  # [frames, 2]
    loudness = np.sqrt(np.mean(np.square(levels), axis=0))
    if loudness.min() < max(_MIN_LEVEL, _MIN_SHARE * loudness.max()):
        return mixed(window)
    deviations = levels - levels.mean(axis=0)
    norms = np.sqrt(np.sum(np.square(deviations), axis=0))
    product = float(norms[0] * norms[1])
    correlation = float(np.sum(deviations[:, 0] * deviations[:, 1])) / product if product else 1.0
    return window if correlation < _MAX_CORRELATION else mixed(window)


def _envelopes(window: Samples) -> NDArray[np.float64]:
    """Return the RMS of each channel [frames, 2] in frames of 50 ms; the last one may be longer."""
    starts = np.arange(max(1, len(window) // _FRAME)) * _FRAME
    squares = np.add.reduceat(np.square(window, dtype=np.float64), starts, axis=0)
    lengths = np.diff([*starts, len(window)])
    envelopes: NDArray[np.float64] = np.sqrt(squares / lengths[:, None])
    return envelopes


def _quietest(window: Samples) -> int:
    """Return the sample at which a window of at least 10 s is cut: in a pause of both channels.

    It is the same one after channels have been mixed, so that a recording may be judged again.
    """
    begin = _WINDOW - _CUT_WITHIN
    return begin + quietest_point(mixed(window[begin:_WINDOW]), _FRAME, _FRAME)
