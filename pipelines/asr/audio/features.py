"""Log-mel spectrograms, equal to openai-whisper's, computed window by window.

Only the samples are held, not the spectrogram: a window's frames are computed when it is
decoded, from the very samples and in the very way that a single pass over the whole file would.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.errors import CheckpointError

__all__ = [
    "FRAMES_PER_SECOND",
    "HOP",
    "MARGIN",
    "FileFeatures",
    "ChunkFeatures",
    "StreamFeatures",
    "WindowFeatures",
    "mel_filters",
]

N_FFT = 400  # samples a frame looks at: 25 ms
HOP = 160  # samples from one frame to the next: 10 ms
FRAMES_PER_SECOND = SAMPLE_RATE // HOP
MARGIN = N_FFT // 2  # samples that a frame looks at on both sides of its centre
_TAIL = 2  # frames after the last whole one that still hear some of the recording
_LOWEST = 1e-10  # power below this is silence,
_SILENT = -10.0  # and its logarithm
_RANGE = 8.0  # powers of ten kept below the loudest frame
_BLOCK = 6000  # frames at once when the whole input is measured: 20 MB of temporaries


@lru_cache(maxsize=4)
def mel_filters(n_mels: int) -> Tensor:
    """Slaney mel filters [n_mels, N_FFT // 2 + 1] for 16 kHz, bit-equal to openai-whisper's.

    Read from mel_filters.npz, which numpy.savez_compressed wrote from
    librosa.filters.mel(sr=16000, n_fft=400, n_mels=n) as mel_80 and mel_128: importing librosa
    takes longer than everything else here. Raises CheckpointError for other numbers of bands.
    """
    with np.load(Path(__file__).with_name("mel_filters.npz"), allow_pickle=False) as table:
        if f"mel_{n_mels}" not in table:
            raise CheckpointError(f"the model wants {n_mels} mel bands; there are 80 or 128")
        return torch.from_numpy(table[f"mel_{n_mels}"])


def _log_power(samples: Samples, n_mels: int) -> Tensor:
    """log10 of mel power [n_mels, frames] of samples [frames * HOP + N_FFT - HOP], no padding."""
    spectrum = torch.stft(
        torch.tensor(samples),  # a copy: the caller's array may be read-only
        N_FFT,
        HOP,
        window=torch.hann_window(N_FFT),
        center=False,
        return_complex=True,
    )
    power = mel_filters(n_mels) @ spectrum.abs() ** 2
    return power.clamp(min=_LOWEST).log10()


def _normalised(log_power: Tensor, loudest: float) -> Tensor:
    return (log_power.clamp(min=loudest - _RANGE) + 4.0) / 4.0


def _surroundings(samples: Samples, offset: int, first: int, count: int) -> Samples:
    """The samples that frames first … first + count - 1 look at.

    samples: the input from sample `offset` on. Before the input begins it is mirrored, as
    torch.stft does; after its end there is silence, as openai-whisper pads it.
    """
    start, stop = first * HOP - MARGIN, (first + count - 1) * HOP + MARGIN
    low, high = max(start, 0) - offset, max(stop - offset, 0)
    piece = samples[low:high]
    before = max(-start, 0)
    after = (stop - start) - before - len(piece)
    if not before and not after:
        return piece
    mirrored = np.zeros(before, np.float32)
    if before:
        head = samples[1 : before + 1]
        mirrored[before - len(head) :] = head[::-1]
    return np.concatenate([mirrored, piece, np.zeros(after, np.float32)])


class WindowFeatures(Protocol):
    """Where the long-form loop gets its windows from. Frames are 10 ms, counted from the start."""

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None as long as the end is not known."""
        ...

    def window(self, seek: int) -> tuple[Tensor, int]:
        """The window [n_mels, window] that begins at frame `seek`, and how many frames are audio.

        Frames after the audio are 0.0, as in openai-whisper's transcribe(). 0 frames: the end.
        """
        ...

    def opening(self) -> Tensor:
        """The first window [n_mels, window] with the spectrum of silence after the audio.

        openai-whisper detects the language on this one, not on the 0.0-padded window.
        """
        ...


class _Features:
    """What file and stream share: frames out of the samples at hand, cut and padded."""

    def __init__(self, n_mels: int, window: int) -> None:
        self._n_mels = n_mels
        self._window = window
        self._samples: Samples = np.zeros(0, np.float32)
        self._offset = 0  # of the first of _samples in the input
        self._loudest = _SILENT

    def _power(self, first: int, count: int) -> Tensor:
        surroundings = _surroundings(self._samples, self._offset, first, count)
        return _log_power(surroundings, self._n_mels)

    def _cut(self, seek: int, frames: int) -> tuple[Tensor, int]:
        """The window at `seek` when the input goes on to frame `frames` or further."""
        size = min(self._window, frames - seek)
        if size <= 0:
            return torch.zeros(self._n_mels, self._window), 0
        audio = _normalised(self._power(seek, size), self._loudest)
        return pad(audio, (0, self._window - size)), size


class FileFeatures(_Features):
    """Windows of a recording that is there as a whole; the floor is that of all of it."""

    def __init__(self, samples: Samples, n_mels: int, window: int) -> None:
        """samples: mono float32 at 16 kHz. window: frames the model hears at once."""
        super().__init__(n_mels, window)
        self._samples = samples
        self._frames = len(samples) // HOP
        self._measured = False

    @property
    def duration(self) -> float:
        return len(self._samples) / SAMPLE_RATE

    def _measure(self) -> None:
        """Find the loudest frame, those that only begin in the recording included."""
        frames = self._frames + _TAIL
        for first in range(0, frames if not self._measured else 0, _BLOCK):
            power = self._power(first, min(_BLOCK, frames - first))
            self._loudest = max(self._loudest, float(power.max()))
        self._measured = True

    def window(self, seek: int) -> tuple[Tensor, int]:
        self._measure()
        return self._cut(seek, self._frames)

    def opening(self) -> Tensor:
        self._measure()
        return _normalised(self._power(0, self._window), self._loudest)


class ChunkFeatures:
    """Windows of a piece of a recording, whose frames count from the recording's start.

    The floor is that of the piece, as if it were a file of its own.
    """

    def __init__(
        self, samples: Samples, offset: int, first: int, last: int, n_mels: int, window: int
    ) -> None:
        """samples: mono float32 at 16 kHz, from sample `offset` of the recording on, with MARGIN
        around the frames from `first` to before `last` where the recording has it."""
        self._first, self._window = first, window
        surroundings = _surroundings(samples, offset, first, max(last - first, 1))
        self._power = _log_power(surroundings, n_mels)[:, : last - first]
        self._loudest = float(self._power.max()) if last > first else _SILENT

    @property
    def duration(self) -> float:
        return self._power.shape[1] / FRAMES_PER_SECOND

    def window(self, seek: int) -> tuple[Tensor, int]:
        power = self._power[:, seek - self._first :][:, : self._window]
        size = power.shape[1]
        return pad(_normalised(power, self._loudest), (0, self._window - size)), size

    def opening(self) -> Tensor:
        power = self._power[:, : self._window]
        silence = self._window - power.shape[1]
        return _normalised(pad(power, (0, silence), value=_SILENT), self._loudest)


class StreamFeatures(_Features):
    """Windows of an iterator of blocks, read only as far as the next window needs.

    The floor follows the loudest frame so far, since the loudest of all is not known yet: a
    stream that grows louder gives its early, quiet windows a lower floor than a file would.
    Windows must be asked for in order; samples before the last one are forgotten.
    """

    def __init__(self, blocks: Iterator[Samples], n_mels: int, window: int) -> None:
        """blocks: mono float32 at 16 kHz, of any lengths. window: as for files."""
        super().__init__(n_mels, window)
        self._blocks = blocks
        self._ended = False
        self._heard = 0  # frames whose loudness is known

    @property
    def _end(self) -> int:
        """Samples read so far, from the start of the input."""
        return self._offset + len(self._samples)

    @property
    def duration(self) -> float | None:
        return self._end / SAMPLE_RATE if self._ended else None

    def _read(self, frames: int) -> int:
        """Read on until `frames` frames are complete, or the end; frames there are."""
        pieces = [self._samples]
        end = self._end
        while not self._ended and end < frames * HOP + MARGIN:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
            else:
                pieces.append(block)
                end += len(block)
        if len(pieces) > 1:
            self._samples = np.concatenate(pieces)
        complete = min(frames, end // HOP)
        self._listen(end // HOP + _TAIL if self._ended else complete)
        return complete

    def _listen(self, frames: int) -> None:
        """Follow the loudest frame up to frame `frames`."""
        while self._heard < frames:
            count = min(_BLOCK, frames - self._heard)
            self._loudest = max(self._loudest, float(self._power(self._heard, count).max()))
            self._heard += count

    def _forget(self, seek: int) -> None:
        done = min(seek * HOP - MARGIN, self._heard * HOP - MARGIN, self._end) - self._offset
        if done > self._window * HOP:  # not at every step: it copies what remains
            self._samples = self._samples[done:].copy()
            self._offset += done

    def window(self, seek: int) -> tuple[Tensor, int]:
        frames = self._read(seek + self._window)
        cut = self._cut(seek, frames)
        self._forget(seek)
        return cut

    def opening(self) -> Tensor:
        self._read(self._window)
        return _normalised(self._power(0, self._window), self._loudest)
