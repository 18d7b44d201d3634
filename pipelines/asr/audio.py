"""Any audio in, mono float32 at 16 kHz out. Decoding is PyAV's: no system ffmpeg is needed."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import AudioError

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.container import InputContainer
    from soxr import ResampleStream

__all__ = ["SAMPLE_RATE", "AudioSource", "DamagedAudio", "is_stream", "load_audio", "read_blocks"]

SAMPLE_RATE = 16_000  # Hz
_STEP = 30 * SAMPLE_RATE  # samples handled at once: bounds temporary copies to 2 MB
_SPOOL_BYTES = 32 << 20  # a pipe is kept in memory up to this size, then in a temporary file
_MIX_GAIN = 0.5**0.5  # libav mixes floats 3 dB louder than integers, which openai-whisper reads
_LONGEST_HINT_S = 6 * 3600.0  # a header that announces more is not believed when allocating

Samples: TypeAlias = NDArray[np.float32]
Block: TypeAlias = "NDArray[Any] | tuple[int, NDArray[Any]]"
AudioSource: TypeAlias = "str | os.PathLike[str] | IO[bytes] | Block | Iterable[Block]"


class DamagedAudio(UserWarning):
    """A file could be decoded only in part; what could be is used."""


def is_stream(source: AudioSource) -> bool:
    """Whether the source is an iterator of blocks, to be read only as far as needed."""
    whole = (str, bytes, os.PathLike, np.ndarray, tuple)
    return not isinstance(source, whole) and not hasattr(source, "read")


def load_audio(source: AudioSource) -> Samples:
    """A whole source as mono float32 [samples] at 16 kHz, held once.

    source: a path, a binary file object (a pipe too), an array, a pair (rate in Hz, array), or
        an iterable of such arrays or pairs. Arrays without a rate are taken as 16 kHz;
        integers are scaled to -1…1; two-dimensional arrays are averaged over their channels.

    Warns with DamagedAudio when a file breaks off or has holes. Raises AudioError when there is
    nothing to decode, or samples are not finite.
    """
    if isinstance(source, (str, os.PathLike)):
        return _load_path(os.fspath(source))
    if isinstance(source, (np.ndarray, tuple)):
        return _load_array(source)
    if hasattr(source, "read"):
        return _load_file(source, _name_of(source))
    buffer = _Buffer("the audio stream")
    for block in read_blocks(source):
        buffer.append(block)
    return buffer.finish()


def read_blocks(source: AudioSource) -> Iterator[Samples]:
    """The blocks of a stream as mono float32 at 16 kHz, lazily, resampled across their seams.

    Raises AudioError when a block is no audio, is not finite, or changes the sample rate.
    """
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise AudioError(
            f"cannot read audio from {type(source).__name__}: give a path, a binary file, "
            "an array, (rate, array), or an iterable of arrays"
        )
    name, rate, resampler = "the audio stream", None, None  # type: str, int | None, Any
    for item in source:
        block_rate, samples = _as_mono(item, name)
        if rate is None:
            rate = block_rate
            resampler = None if rate == SAMPLE_RATE else _resampler(rate)
        if block_rate != rate:
            raise AudioError(f"{name} changes its sample rate from {rate} to {block_rate} Hz")
        _check_finite(samples, name)
        yield samples if resampler is None else resampler.resample_chunk(samples)
    if resampler is not None:
        yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)


class _Buffer:
    """Samples that arrive bit by bit, in one array grown in place.

    ndarray.resize reallocates, which for large arrays moves pages instead of copying them, so
    even while it grows there is one copy. numpy.concatenate would need two.
    """

    def __init__(self, name: str, expected: int = 0) -> None:
        self._name = name
        self._array = np.empty(max(expected, _STEP), np.float32)
        self.length = 0

    def append(self, block: Samples) -> None:
        _check_finite(block, self._name)
        end = self.length + len(block)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) * 9 // 8 + _STEP), refcheck=False)
        self._array[self.length : end] = block
        self.length = end

    def finish(self) -> Samples:
        self._array.resize(self.length, refcheck=False)
        return self._array


def _check_finite(samples: Samples, name: str) -> None:
    # The sum is finite only if all are (or, rarely, overflows): one pass without a mask.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(samples.sum(dtype=np.float64))
    if suspicious and not np.isfinite(samples).all():
        raise AudioError(
            f"{name} holds samples that are not numbers (NaN or infinite); "
            "repair or re-export the recording"
        )


def _as_mono(block: Block, name: str) -> tuple[int, Samples]:
    """(rate, mono float32 samples) of an array or a pair; the very array when it is that already."""
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
    if array.ndim == 2:
        # Few channels, many samples, whichever way round.
        return int(rate), _scaled(array).mean(axis=int(np.argmin(array.shape)), dtype=np.float32)
    if array.ndim != 1:
        raise AudioError(f"{name} must have one or two dimensions, not {array.ndim}")
    return int(rate), _scaled(array)


def _scaled(array: NDArray[Any]) -> Samples:
    """Float32 in -1…1: signed integers by their full scale, unsigned ones around their middle."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype=np.float32)
    full = float(2 ** (8 * array.dtype.itemsize - 1))
    scaled = array.astype(np.float32)
    if array.dtype.kind == "u":
        scaled -= np.float32(full)
    scaled /= np.float32(full)
    return scaled


def _load_array(source: Block) -> Samples:
    rate, samples = _as_mono(source, "the audio array")
    if rate == SAMPLE_RATE:
        for start in range(0, len(samples), _STEP):
            _check_finite(samples[start : start + _STEP], "the audio array")
        return samples
    resampler = _resampler(rate)
    buffer = _Buffer("the audio array", len(samples) * SAMPLE_RATE // rate + _STEP)
    for start in range(0, len(samples), _STEP):
        last = start + _STEP >= len(samples)
        buffer.append(resampler.resample_chunk(samples[start : start + _STEP], last=last))
    return buffer.finish()


def _resampler(rate: int) -> ResampleStream:
    import soxr

    return soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")


def _load_path(path: str) -> Samples:
    try:
        # Our own file object: libav would read "a:b.wav" or "http:x" as a protocol.
        with open(path, "rb") as file:
            return _load_file(file, path)
    except FileNotFoundError:
        raise AudioError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise AudioError(f"{path} is a folder, not an audio file") from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror or error}") from error


def _name_of(file: object) -> str:
    name = getattr(file, "name", None)  # a number where the file was opened from a descriptor
    return name if isinstance(name, str) else "the audio stream"


def _load_file(file: Any, name: str) -> Samples:
    with _seekable(file) as source, _open(source, name) as container:
        stream = container.streams.best("audio")
        if stream is None:
            raise AudioError(f"{name} holds no audio track; is it an audio or video file?")
        announced = float(stream.duration * stream.time_base) if stream.duration else 0.0
        if announced > _LONGEST_HINT_S:
            announced = 0.0
        buffer = _Buffer(name, int(announced * SAMPLE_RATE) + _STEP)
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
    """The file itself, or a copy where it is a pipe: some containers keep their index at the end."""
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

    damaged, gain = False, 1.0
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
                _drain(resampler, None, buffer, gain)
                resampler, layout = av.AudioResampler("flt", "mono", SAMPLE_RATE), now
                gain = _MIX_GAIN if frame.layout.nb_channels > 1 else 1.0
            frame.pts = None  # gaps in the clock would be filled or refused
            _drain(resampler, frame, buffer, gain)
    _drain(resampler, None, buffer, gain)
    return damaged


def _drain(
    resampler: AudioResampler | None, frame: AudioFrame | None, buffer: _Buffer, gain: float
) -> None:
    if resampler is not None:
        for resampled in resampler.resample(frame):
            buffer.append(resampled.to_ndarray().reshape(-1) * np.float32(gain))
