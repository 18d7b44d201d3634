"""Log-mel spectrograms, equal to openai-whisper's, computed window by window.

Only the samples are kept, not the spectrogram. The frames of a window are computed when the window
is decoded, from the same samples and with the same operations as in one pass over the whole file.
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

N_FFT = 400  # samples in the STFT window of a frame: 25 ms
HOP = 160  # samples from one frame to the next: 10 ms
FRAMES_PER_SECOND = SAMPLE_RATE // HOP
MARGIN = N_FFT // 2  # samples of the STFT window on each side of the frame's centre
_TAIL_FRAMES = 2  # frames after the last complete one whose STFT window overlaps the recording
_MIN_POWER = 1e-10  # lower power is clamped to this
_SILENCE = -10.0  # log10(_MIN_POWER)
_DYNAMIC_RANGE = 8.0  # powers of ten kept below the loudest frame
# Silence after a chunk that is encoded without the rest of the window, and the least that is then
# encoded, in steps: frames. With a least of 5 s a short chunk of German was repeated to the end.
_CHUNK_SILENCE, _LEAST_CHUNK, _CHUNK_STEP = 300, 1000, 100
# The loudest frame that a chunk is raised to, and by how much at most: powers of ten. Models were
# trained with few recordings as quiet as those of some microphones.
_ORDINARY, _MOST_GAIN = 1.0, 4.0
_MEASURE_FRAMES = 6000  # frames at once when the whole input is measured: 20 MB of temporaries


@lru_cache(maxsize=4)
def mel_filters(n_mels: int) -> Tensor:
    """Slaney mel filters [n_mels, N_FFT // 2 + 1] for 16 kHz, bit-equal to openai-whisper's.

    Read from mel_filters.npz, which numpy.savez_compressed wrote from
    librosa.filters.mel(sr=16000, n_fft=400, n_mels=n) as mel_80 and mel_128: importing librosa
    takes longer than everything else here.

    Raises:
        CheckpointError: `n_mels` is neither 80 nor 128.
    """
    with np.load(Path(__file__).with_name("mel_filters.npz"), allow_pickle=False) as table:
        if f"mel_{n_mels}" not in table:
            raise CheckpointError(f"the model needs {n_mels} mel bands; 80 and 128 are supported")
        return torch.from_numpy(table[f"mel_{n_mels}"])


def _log_power(samples: Samples, n_mels: int) -> Tensor:
    """log10 mel power [n_mels, frames] of samples [frames * HOP + N_FFT - HOP], without padding."""
    spectrum = torch.stft(
        torch.tensor(samples),  # a copy: the caller's array may be read-only
        N_FFT,
        HOP,
        window=torch.hann_window(N_FFT),
        center=False,
        return_complex=True,
    )
    power = mel_filters(n_mels) @ spectrum.abs() ** 2
    return power.clamp(min=_MIN_POWER).log10()


def _normalise(log_power: Tensor, loudest: float) -> Tensor:
    """Whisper's scaling: clamp to 8 powers of ten below the loudest frame, then (x + 4) / 4."""
    return (log_power.clamp(min=loudest - _DYNAMIC_RANGE) + 4.0) / 4.0


def _frame_context(samples: Samples, offset: int, first: int, count: int) -> Samples:
    """The samples [count * HOP + N_FFT - HOP] below the STFT windows of `count` frames.

    Before its start the input is mirrored, as by torch.stft; after its end it is padded with
    silence, as by openai-whisper.

    Args:
        samples: the input from sample `offset` on.
        offset: position of samples[0] in the input.
        first: index of the first frame.
        count: number of frames.
    """
    start, stop = first * HOP - MARGIN, (first + count - 1) * HOP + MARGIN
    low, high = max(start, 0) - offset, max(stop - offset, 0)
    inside = samples[low:high]
    before = max(-start, 0)
    after = (stop - start) - before - len(inside)
    if not before and not after:
        return inside
    mirrored = np.zeros(before, np.float32)
    if before:
        head = samples[1 : before + 1]
        mirrored[before - len(head) :] = head[::-1]
    return np.concatenate([mirrored, inside, np.zeros(after, np.float32)])


class WindowFeatures(Protocol):
    """Source of the windows that long-form decoding reads. Frames of 10 ms count from the start."""

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None while the end is not known."""
        ...

    @property
    def frames(self) -> int | None:
        """Frames of audio; None while the end is not known."""
        ...

    @property
    def size(self) -> int:
        """Frames of the model's window."""
        ...

    def window(self, seek: int) -> tuple[Tensor, int]:
        """The window that begins at frame `seek`.

        Returns:
            Features [n_mels, at most `size`] and the number of frames that are audio; 0 at the end.
            Frames after the audio are 0.0, as in openai-whisper's transcribe(), or silence after a
            chunk.
        """
        ...

    def first_window(self) -> Tensor:
        """The first window [n_mels, window], padded with the spectrum of silence.

        openai-whisper detects the language on this window, not on the one padded with 0.0.
        """
        ...


class _Features:
    """Base of files and streams: computes frames from the samples in memory, cuts and pads them."""

    def __init__(self, n_mels: int, window: int) -> None:
        self._n_mels = n_mels
        self.size = window
        self._samples: Samples = np.zeros(0, np.float32)
        self._offset = 0  # position of _samples[0] in the input
        self._loudest = _SILENCE

    def _power(self, first: int, count: int) -> Tensor:
        context = _frame_context(self._samples, self._offset, first, count)
        return _log_power(context, self._n_mels)

    def _cut(self, seek: int, frames: int) -> tuple[Tensor, int]:
        """The window at frame `seek`, with audio up to frame `frames`."""
        size = min(self.size, frames - seek)
        if size <= 0:
            return torch.zeros(self._n_mels, self.size), 0
        audio = _normalise(self._power(seek, size), self._loudest)
        return pad(audio, (0, self.size - size)), size


class FileFeatures(_Features):
    """Windows of a complete recording. The loudest frame of all of it sets the floor."""

    def __init__(self, samples: Samples, n_mels: int, window: int) -> None:
        super().__init__(n_mels, window)
        self._samples = samples
        self._frames = len(samples) // HOP
        self._measured = False

    @property
    def duration(self) -> float:
        return len(self._samples) / SAMPLE_RATE

    @property
    def frames(self) -> int:
        return self._frames

    def _measure(self) -> None:
        """Find the loudest frame, including those that only overlap the recording's end."""
        frames = self._frames + _TAIL_FRAMES
        for first in range(0, frames if not self._measured else 0, _MEASURE_FRAMES):
            power = self._power(first, min(_MEASURE_FRAMES, frames - first))
            self._loudest = max(self._loudest, float(power.max()))
        self._measured = True

    def window(self, seek: int) -> tuple[Tensor, int]:
        self._measure()
        return self._cut(seek, self._frames)

    def first_window(self) -> Tensor:
        self._measure()
        return _normalise(self._power(0, self.size), self._loudest)


class ChunkFeatures:
    """Windows of a chunk of a recording; its frames count from the recording's start.

    The loudest frame of the chunk sets the floor, as if the chunk were a file. A quiet chunk is
    raised to an ordinary level. Frames after the chunk are at the floor, as digital silence is in
    the recordings that models were trained with. The 0.0 that openai-whisper's transcribe() has
    there is a hiss, with which more words are wrong.
    """

    def __init__(
        self,
        samples: Samples,
        offset: int,
        start_frame: int,
        end_frame: int,
        n_mels: int,
        window: int,
        *,
        follow: bool = False,
    ) -> None:
        """
        Args:
            samples: mono float32 [n] at 16 kHz, with MARGIN samples around the frames as far as
                the recording has them.
            offset: position of samples[0] in the recording, in samples.
            start_frame: the first frame.
            end_frame: the frame after the last one.
            n_mels: mel bands, 80 or 128.
            window: frames in the model's window.
            follow: windows end some silence after the audio, instead of with the model's window.
        """
        self._start_frame, self.size, self._follow = start_frame, window, follow
        frames = end_frame - start_frame
        context = _frame_context(samples, offset, start_frame, max(frames, 1))
        self._power = _log_power(context, n_mels)[:, :frames]
        loudest = float(self._power.max()) if frames else _SILENCE
        gain = min(max(_ORDINARY - loudest, 0.0), _MOST_GAIN) if loudest > _SILENCE else 0.0
        self._power += gain
        self._loudest = loudest + gain

    @property
    def duration(self) -> float:
        return self._power.shape[1] / FRAMES_PER_SECOND

    @property
    def frames(self) -> int:
        return self._start_frame + self._power.shape[1]

    def window(self, seek: int) -> tuple[Tensor, int]:
        power = self._power[:, seek - self._start_frame :][:, : self.size]
        size = power.shape[1]
        length = self.size
        if self._follow:
            steps = -(-(size + _CHUNK_SILENCE) // _CHUNK_STEP)
            length = min(length, max(steps * _CHUNK_STEP, _LEAST_CHUNK))
        return self._padded(power, length), size

    def first_window(self) -> Tensor:
        return self._padded(self._power[:, : self.size], self.size)

    def _padded(self, power: Tensor, length: int) -> Tensor:
        """Return the features of frames, with silence after them."""
        silence = (0, length - power.shape[1])
        return _normalise(pad(power, silence, value=_SILENCE), self._loudest)


class StreamFeatures(_Features):
    """Windows of an iterator of blocks, which is read only as far as the next window needs.

    The loudest frame so far sets the floor, since later ones are not known yet: if a stream grows
    louder, its early, quiet windows have a lower floor than in a file. Windows must be requested
    in order; samples before the latest window are dropped.
    """

    def __init__(self, blocks: Iterator[Samples], n_mels: int, window: int) -> None:
        super().__init__(n_mels, window)
        self._blocks = blocks
        self._ended = False
        self._measured = 0  # frames of which the loudest is known

    @property
    def _end(self) -> int:
        """Number of samples read so far."""
        return self._offset + len(self._samples)

    @property
    def duration(self) -> float | None:
        return self._end / SAMPLE_RATE if self._ended else None

    @property
    def frames(self) -> int | None:
        return self._end // HOP if self._ended else None

    def _read(self, frames: int) -> int:
        """Read until `frames` frames are complete or the input ends; returns the complete ones."""
        blocks = [self._samples]
        end = self._end
        while not self._ended and end < frames * HOP + MARGIN:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
            else:
                blocks.append(block)
                end += len(block)
        if len(blocks) > 1:
            self._samples = np.concatenate(blocks)
        complete = min(frames, end // HOP)
        self._measure(end // HOP + _TAIL_FRAMES if self._ended else complete)
        return complete

    def _measure(self, frames: int) -> None:
        """Update the loudest frame, up to frame `frames`."""
        while self._measured < frames:
            count = min(_MEASURE_FRAMES, frames - self._measured)
            self._loudest = max(self._loudest, float(self._power(self._measured, count).max()))
            self._measured += count

    def _drop_before(self, seek: int) -> None:
        """Drop samples that no frame from `seek` on needs."""
        done = min(seek * HOP - MARGIN, self._measured * HOP - MARGIN, self._end) - self._offset
        if done > self.size * HOP:  # not for every window: the rest is copied
            self._samples = self._samples[done:].copy()
            self._offset += done

    def window(self, seek: int) -> tuple[Tensor, int]:
        frames = self._read(seek + self.size)
        cut = self._cut(seek, frames)
        self._drop_before(seek)
        return cut

    def first_window(self) -> Tensor:
        self._read(self.size)
        return _normalise(self._power(0, self.size), self._loudest)
