"""Any audio in, mono float32 at 16 kHz out. Decoding is PyAV's: no system ffmpeg is needed."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipelines.asr.arrays import (
    SAMPLE_RATE,
    Block,
    Samples,
    as_mono,
    check_finite,
    read_blocks,
    resampled,
    samples_of,
)
from pipelines.errors import AudioError, LongAudio

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.container import InputContainer

__all__ = ["AudioSource", "DamagedAudio", "is_stream", "load_audio"]

_STEP = 30 * SAMPLE_RATE  # samples handled at once: bounds temporary copies to 2 MB
_SPOOL_BYTES = 32 << 20  # a pipe is kept in memory up to this size, then in a temporary file
# libav mixes floats louder than integers, which openai-whisper reads: by 3 dB for two channels, by
# 11 for six. With this it mixes them alike.
_MIXING = {"rematrix_maxval": "1.0"}
_LONGEST_HINT_S = 6 * 3600.0  # a header that announces more is not believed when allocating

AudioSource: TypeAlias = "str | os.PathLike[str] | IO[bytes] | Block | Iterable[Block]"


class DamagedAudio(UserWarning):
    """A file could be decoded only in part; what could be is used."""


def is_stream(source: AudioSource) -> bool:
    """Whether the source is an iterator of blocks, to be read only as far as needed."""
    whole = (str, bytes, os.PathLike, np.ndarray, tuple)
    return not isinstance(source, whole) and not hasattr(source, "read")


def load_audio(source: AudioSource, longest_s: float | None = None) -> Samples:
    """A whole source as mono float32 [samples] at 16 kHz, held once.

    source: a path, a binary file object (a pipe too), an array, a pair (rate in Hz, array), or
        an iterable of such arrays or pairs. Arrays without a rate are taken as 16 kHz;
        integers are scaled to -1…1; two-dimensional arrays are averaged over their channels.

    longest_s: what is longer is refused as soon as so much has been decoded: files need not tell.

    Warns with DamagedAudio when a file breaks off or has holes. Raises AudioError when there is
    nothing to decode, or samples are not finite; LongAudio, which is one, when there is too much.
    """
    longest = math.inf if longest_s is None else longest_s * SAMPLE_RATE
    if isinstance(source, (str, os.PathLike)):
        return _load_path(os.fspath(source), longest)
    if isinstance(source, (np.ndarray, tuple)):
        return _load_array(source, longest)
    if hasattr(source, "read"):
        return _load_file(source, _name_of(source), longest)
    buffer = _Buffer("the audio stream", longest)
    for block in read_blocks(source):
        buffer.append(block)
    return buffer.finish()


class _Buffer:
    """Samples that arrive bit by bit, in one array grown in place.

    ndarray.resize reallocates, which for large arrays moves pages instead of copying them, so
    even while it grows there is one copy. numpy.concatenate would need two.
    """

    def __init__(self, name: str, longest: float, expected: int = 0) -> None:
        self.name, self._longest = name, longest
        self._array = np.empty(max(expected, _STEP), np.float32)
        self.length = 0

    def append(self, block: Samples) -> None:
        check_finite(block, self.name)
        end = self.length + len(block)
        _check_length(end, self._longest, self.name)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) * 9 // 8 + _STEP), refcheck=False)
        self._array[self.length : end] = block
        self.length = end

    def finish(self) -> Samples:
        self._array.resize(self.length, refcheck=False)
        return self._array


def _check_length(samples: int, longest: float, name: str) -> None:
    if samples > longest:
        raise LongAudio(f"{name} lasts more than {longest / SAMPLE_RATE:g} s")


def _load_array(source: Block, longest: float) -> Samples:
    name = "the audio array"
    rate, samples = as_mono(source, name)
    pieces = (samples[start : start + _STEP] for start in range(0, len(samples), _STEP))
    if rate == SAMPLE_RATE:
        _check_length(len(samples), longest, name)
        for piece in pieces:
            check_finite(piece, name)
        return samples
    buffer = _Buffer(name, longest, len(samples) * SAMPLE_RATE // rate + _STEP)
    for block in resampled(pieces, rate):
        buffer.append(block)
    return buffer.finish()


def _load_path(path: str, longest: float) -> Samples:
    try:
        # Our own file object: libav would read "a:b.wav" or "http:x" as a protocol.
        with Path(path).open("rb") as file:
            return _load_file(file, path, longest)
    except FileNotFoundError:
        raise AudioError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise AudioError(f"{path} is a folder, not an audio file") from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror or error}") from error


def _name_of(file: object) -> str:
    name = getattr(file, "name", None)  # a number where the file was opened from a descriptor
    return name if isinstance(name, str) else "the audio stream"


def _load_file(file: Any, name: str, longest: float) -> Samples:
    with _seekable(file) as source, _open(source, name) as container:
        stream = container.streams.best("audio")
        if stream is None:
            raise AudioError(f"{name} holds no audio track; is it an audio or video file?")
        announced = float(stream.duration * (stream.time_base or 0)) if stream.duration else 0.0
        if announced > _LONGEST_HINT_S:
            announced = 0.0
        buffer = _Buffer(name, longest, int(announced * SAMPLE_RATE) + _STEP)
        damaged = _decode(container, stream.index, buffer)
        if not buffer.length:
            raise AudioError(f"{name} holds no audio that can be decoded: it is empty or damaged")
    got = buffer.length / SAMPLE_RATE
    if damaged or got < announced - max(0.5, 0.01 * announced):
        of = f" of the {announced:.1f} s it announces" if got < announced - 0.05 else ""
        warnings.warn(
            f"{name} is damaged or breaks off: {got:.1f} s{of} could be decoded",
            DamagedAudio,
            stacklevel=2,
        )
    return buffer.finish()


@contextmanager
def _seekable(file: Any) -> Iterator[Any]:
    """The file itself, or a copy of a pipe: some containers keep their index at the end."""
    try:
        seekable = file.seekable()
    except AttributeError:
        seekable = hasattr(file, "seek") and hasattr(file, "tell")
    if seekable:
        yield file
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


@contextmanager
def _open(file: Any, name: str) -> Iterator[InputContainer]:
    import av

    av.logging.set_level(None)  # libav would write its own complaints to stderr
    # A playlist is media to libav, and what it lists could be anything anywhere.
    options = {"protocol_whitelist": ""}
    try:
        container = av.open(file, mode="r", metadata_errors="ignore", options=options)
    except (av.FFmpegError, ValueError, UnicodeError):
        empty = file.seek(0, os.SEEK_END) == 0
        why = "is empty" if empty else "is not audio that can be decoded, or is damaged"
        raise AudioError(f"{name} {why}") from None
    with container:
        yield container


def _decode(container: InputContainer, index: int, buffer: _Buffer) -> bool:
    """Decode one stream to the end or to where it breaks; whether anything was damaged."""
    import av

    damaged = False
    resampler, layout = None, None  # type: AudioResampler | None, object
    packets = container.demux(container.streams[index])
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            break
        except av.FFmpegError:
            damaged = True
            break
        try:
            frames: list[Any] = packet.decode()
        except av.FFmpegError:
            damaged = True
            continue
        for frame in frames:
            now = (frame.format.name, frame.layout.name, frame.sample_rate)
            if now != layout:  # spliced files change format on the way
                _drain(resampler, None, buffer)
                resampler = av.AudioResampler("flt", "mono", SAMPLE_RATE, options=_MIXING)
                layout = now
            frame.pts = None  # gaps in the clock would be filled or refused
            _drain(resampler, frame, buffer)
    _drain(resampler, None, buffer)
    return damaged


def _drain(resampler: AudioResampler | None, frame: AudioFrame | None, buffer: _Buffer) -> None:
    if resampler is None:
        return
    import av

    try:
        mixed = resampler.resample(frame)
    except av.FFmpegError:
        channels = f" ({frame.layout.name})" if frame is not None else ""
        raise AudioError(
            f"{buffer.name} has channels{channels} that cannot be mixed into one: "
            "export it as mono or stereo"
        ) from None
    for part in mixed:
        buffer.append(samples_of(part))
