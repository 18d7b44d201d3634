"""Decodes audio of any source to mono float32 at 16 kHz with PyAV; no system ffmpeg is needed."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pipelines.asr.audio.arrays import (
    MAX_AMPLITUDE,
    MAX_BLOCK,
    SAMPLE_RATE,
    Block,
    LoudAudio,
    SampleBuffer,
    Samples,
    as_mono,
    cancels,
    check_format,
    peak_amplitude,
)
from pipelines.asr.audio.channels import separate_unlike
from pipelines.asr.audio.ogg_links import ogg_links
from pipelines.asr.audio.resample import frame_samples, read_blocks, resample
from pipelines.errors import AudioError, LongAudio
from pipelines.notices import notice

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream
    from av.container import InputContainer

_BYTES = (bytes, bytearray, memoryview)
_SPOOL_BYTES = 32 << 20  # a pipe is buffered in memory up to this size, then in a temporary file
# For floats, libav's default downmix is louder than for integers, which openai-whisper reads: by
# 3 dB for two channels, by 11 dB for six. This option makes both equal.
_MIXING = {"rematrix_maxval": "1.0"}
# A longer announced duration may be a placeholder, written before the length was known: a shorter
# file is then not reported as damaged.
_MAX_CREDIBLE_S = 6 * 3600.0
_MAX_ANNOUNCED_S = 30 * 86_400.0  # 165 GB of samples: a header that announces more is rejected
# Gaps between presentation times become silence, as players leave one: from the first of these on,
# and as long as all of a file together are at most the last. Others are damaged times.
_LEAST_GAP_S, _MAX_GAPS_S = 0.1, 6 * 3600.0
# Formats whose files hold presentation times; in others times are counted, or begin anew.
_TIMED_FORMATS = frozenset(
    {"matroska", "webm", "mov", "mp4", "mpegts", "mpeg", "flv", "avi", "asf"}
)
_COMPARED_S = 10.0  # sound by which two channels are compared
_MAX_FRAME_SAMPLES = 1 << 24  # of all channels that one frame may decode to
# libav decodes the first frames while it opens a file, those of covers and videos too.
_MAX_PIXELS = 1 << 26
_MAX_STREAMS = 10_000  # of a file; each cover is one
_MAX_ALLOCATION_BYTES = 384 << 20  # of one block in libav; a picture of _MAX_PIXELS needs 256 MB

_DURATION = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")  # as Matroska's writers note it

AudioSource: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | Block | Iterable[Block]"
"""A path, the bytes of a file, a binary file, an array at 16 kHz, a pair (rate, array), or an
iterable of blocks."""


class DamagedAudio(UserWarning):
    """A file could be decoded only in part; that part is used."""


class OppositeChannels(UserWarning):
    """Two channels of opposite sign, whose mean would be silence; one of them is used."""


def is_stream(source: AudioSource) -> bool:
    """Whether the source is an iterable of blocks, to be read only as far as needed."""
    complete = (str, *_BYTES, os.PathLike, np.ndarray, tuple)
    return not isinstance(source, complete) and not hasattr(source, "read")


def load_audio(
    source: AudioSource,
    max_duration_s: float | None = None,
    *,
    channel: int | None = None,
    keep_unlike: bool = False,
) -> Samples:
    """Decode a source completely. One copy of the samples is held.

    A recording with samples beyond ±MAX_AMPLITUDE (16) is divided by its peak. Smaller overs are
    left as they are.

    Args:
        source: a path, the bytes of a file, a binary file object (also a pipe), an array, a pair
            (rate in Hz, array), or an iterable of such arrays or pairs. Arrays without a rate are
            taken as 16 kHz; integers are scaled to -1…1; channels of two-dimensional arrays are
            averaged.
        max_duration_s: maximum duration (s); None: unlimited. Longer recordings are rejected by
            their header before decoding, or else as soon as more has been decoded.
        channel: of a file, this channel alone, from 0; None: all are averaged.
        keep_unlike: keep two channels where they hold different sound, as in a call with one
            speaker on each.

    Returns:
        Mono float32 [samples] at 16 kHz; with `keep_unlike`, [samples, 2] if two channels are
        unlike in some part.

    Raises:
        AudioError: the source holds no decodable audio, samples are not finite, the sample
            rate, channels or announced duration are out of bounds, or there is no such channel.
        LongAudio: (an AudioError) the recording is longer than `max_duration_s`.

    Warns:
        DamagedAudio: the file breaks off or has gaps.
        LoudAudio: the recording was scaled down.
        OppositeChannels: two channels cancel each other, and the louder one is used.
    """
    if isinstance(source, _BYTES):
        source = io.BytesIO(source)
    is_file = isinstance(source, (str, os.PathLike)) or hasattr(source, "read")
    if channel is not None and not is_file:
        raise AudioError("a channel can be chosen of files only: give that channel of the array")
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        blocks = decode_path(path, path, max_duration_s, channel, keep_unlike)
        return _collect(blocks, path, max_duration_s)
    if isinstance(source, (np.ndarray, tuple)):
        pair = _pair_of(source) if keep_unlike else None
        if pair is not None:
            channels = np.stack([_load_array(each, max_duration_s) for each in pair], axis=1)
            return _collect(separate_unlike([channels]), "the audio array", max_duration_s)
        return _load_array(source, max_duration_s)
    if hasattr(source, "read"):
        name = _name_of(source)
        blocks = _decode_file(source, name, max_duration_s, channel, keep_unlike)
        return _collect(blocks, name, max_duration_s)
    return _collect(read_blocks(source, clip=False), "the audio stream", max_duration_s)


def _collect(blocks: Iterable[Samples], name: str, max_duration_s: float | None) -> Samples:
    buffer = SampleBuffer(name, max_duration_s)
    for block in blocks:
        buffer.append(block)
    if (message := buffer.loudness_warning()) is not None:
        notice(message, LoudAudio, stacklevel=3)
    return buffer.finish()


def _load_array(source: Block, max_duration_s: float | None) -> Samples:
    name = "the audio array"
    rate, samples = as_mono(source, name)
    blocks = [samples[start : start + MAX_BLOCK] for start in range(0, len(samples), MAX_BLOCK)]
    if rate != SAMPLE_RATE or any(peak_amplitude(block, name) > MAX_AMPLITUDE for block in blocks):
        return _collect(resample(blocks, rate), name, max_duration_s)
    if max_duration_s is not None and len(samples) > max_duration_s * SAMPLE_RATE:
        raise LongAudio.of(name, max_duration_s)
    return samples  # not copied


def _pair_of(source: Block) -> list[Block] | None:
    """Return the two channels of an array, or of a pair (rate, array); None if it has not two."""
    rate, array = source if isinstance(source, tuple) and len(source) == 2 else (None, source)
    if not isinstance(array, np.ndarray) or array.ndim != 2 or min(array.shape) != 2:
        return None
    channels = array if array.shape[0] == 2 else array.T
    return [each if rate is None else (rate, each) for each in channels]


def decode_path(
    path: str,
    name: str,
    max_duration_s: float | None = None,
    channel: int | None = None,
    keep_unlike: bool = False,
) -> Iterator[Samples]:
    """Decode an audio file block by block.

    Args:
        path: an audio or video file.
        name: the file's name in errors and warnings.
        max_duration_s: a header that announces more seconds is rejected. The decoded duration is
            not checked.
        channel: this one alone, from 0; None: all are averaged.
        keep_unlike: keep two channels where they are unlike.

    Yields:
        Mono float32 samples [n] at 16 kHz, or two channels [n, 2].

    Raises:
        AudioError: the file cannot be read or decoded, or its header is out of bounds.
        LongAudio: the header announces more than `max_duration_s`.
    """
    with _opened(path, name) as file:
        yield from _decode_file(file, name, max_duration_s, channel, keep_unlike)


@dataclass(frozen=True)
class AudioFile:
    """An audio or video file, decoded block by block each time that it is iterated.

    Iterating it yields mono float32 samples [n] at 16 kHz, or two channels [n, 2] where they hold
    different sound, and raises and warns as `load_audio`.
    A Transcriber takes it as a stream of blocks: it is read only as far as needed, and samples
    beyond ±MAX_AMPLITUDE (16) are clipped, since its peak is not known before its end.

    Attributes:
        path: The file.
        duration_s: Seconds, as the header announces them; None if it does not. Some headers are
            estimates.
        unbounded: Its format keeps floats as they are, so that it may well have such samples.
    """

    path: str
    duration_s: float | None
    unbounded: bool

    def __iter__(self) -> Iterator[Samples]:
        return decode_path(self.path, self.path, keep_unlike=True)


def open_audio(path: str | os.PathLike[str]) -> AudioFile:
    """Read the header of an audio or video file.

    Args:
        path: The file.

    Raises:
        AudioError: it cannot be read, holds no audio track, or its header is out of bounds.
    """
    name = os.fspath(path)
    with _opened(name, name) as file, _open(_LenientSeek(file), name) as container:
        stream = _audio_stream(container, name)
        _announced_duration(container, stream, name, None)
        announced_s = _track_duration(container, stream) or (container.duration or 0) / 1e6
        codec = stream.codec_context.name
    return AudioFile(name, announced_s or None, codec.startswith("pcm_f"))


@contextmanager
def _opened(path: str, name: str) -> Iterator[IO[bytes]]:
    """A file object instead of the path: libav would read "a:b.wav" or "http:x" as a protocol."""
    try:
        with Path(path).open("rb") as file:
            yield file
    except FileNotFoundError:
        raise AudioError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise AudioError(f"{name} is a folder, not an audio file") from None
    except OSError as error:
        if error.errno == errno.ENOMEM:  # as MemoryError
            raise _without_memory(name) from None
        raise AudioError(f"{name} cannot be read: {error.strerror or error}") from error


def _without_memory(name: str) -> AudioError:
    return AudioError(f"{name} needs more memory to decode than is available")


def _name_of(file: object) -> str:
    name = getattr(file, "name", None)  # a number if the file was opened from a descriptor
    return name if isinstance(name, str) else "the audio stream"


def _decode_file(
    file: Any,
    name: str,
    max_duration_s: float | None,
    channel: int | None = None,
    keep_unlike: bool = False,
) -> Iterator[Samples]:
    with _seekable(file) as source:
        links = [_LenientSeek(link) for link in ogg_links(source)]
        decoded, failed = False, None  # type: bool, AudioError | None
        for part in links or [source]:
            try:
                for block in _decode_container(part, name, max_duration_s, channel, keep_unlike):
                    decoded = True
                    yield block
            except LongAudio:
                raise
            except AudioError as error:
                failed = error
        if failed is not None:
            if not decoded or not links:
                raise failed
            notice(f"{failed}; the other parts of the file are used", DamagedAudio, stacklevel=2)


def _decode_container(
    source: _LenientSeek,
    name: str,
    max_duration_s: float | None,
    channel: int | None,
    keep_unlike: bool,
) -> Iterator[Samples]:
    samples = 0
    try:
        with _open(source, name) as container:
            stream = _audio_stream(container, name)
            announced_s = _announced_duration(container, stream, name, max_duration_s)
            decoder = _StreamDecoder(container, stream, name, channel, keep_unlike)
            for block in separate_unlike(decoder) if keep_unlike else decoder:
                samples += len(block)
                yield block
    except MemoryError:
        raise _without_memory(name) from None
    if not samples:
        raise AudioError(f"{name} holds no audio that can be decoded: it is empty or damaged")
    decoded_s = samples / SAMPLE_RATE
    if decoder.damaged or decoded_s < announced_s - max(0.5, 0.01 * announced_s):
        of = f" of the {announced_s:.1f} s it announces" if decoded_s < announced_s - 0.05 else ""
        notice(
            f"{name} is damaged or breaks off: {decoded_s:.1f} s{of} could be decoded",
            DamagedAudio,
            stacklevel=2,
        )


@contextmanager
def _seekable(file: Any) -> Iterator[_LenientSeek]:
    """The file itself, or a copy of a pipe: some containers keep their index at the end."""
    try:
        seekable = file.seekable()
    except AttributeError:
        seekable = hasattr(file, "seek") and hasattr(file, "tell")
    if seekable:
        yield _LenientSeek(file)
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield _LenientSeek(copy)


class _LenientSeek:
    """A file for libav: an impossible seek returns an error instead of raising it.

    A damaged file leads libav before its beginning. PyAV would print all but the first of the
    errors, and raise that one, though libav can go on.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.name = getattr(file, "name", "")
        self.read, self.tell = file.read, file.tell

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            position = self._file.seek(offset, whence)
        except (OSError, ValueError):
            return -errno.EINVAL
        return int(self._file.tell() if position is None else position)


@contextmanager
def _open(file: Any, name: str) -> Iterator[InputContainer]:
    import av

    av.logging.set_level(None)  # libav would log to stderr
    _limit_allocations()
    options = {
        # libav opens playlists as media; their entries could point to any file or URL.
        "protocol_whitelist": "",
        "max_samples": str(_MAX_FRAME_SAMPLES),
        "max_pixels": str(_MAX_PIXELS),
        "max_streams": str(_MAX_STREAMS),
    }
    try:
        container = av.open(file, mode="r", metadata_errors="ignore", options=options)
    except (av.FFmpegError, ValueError, UnicodeError) as error:
        _raise_without_memory(error)
        empty = file.seek(0, os.SEEK_END) == 0
        damaged = f"{name} is not audio that can be decoded, or is damaged"
        raise AudioError(f"{name} is empty" if empty else damaged) from None
    with container:
        yield container


@cache
def _limit_allocations() -> None:
    """Let libav allocate at most _MAX_ALLOCATION_BYTES at once.

    It allocates what the header of a chunk announces before it reads the chunk: up to 2 GB for a
    file of 100 bytes. PyAV has no function for this limit. Where libav's cannot be found through
    PyAV's module (on Windows), there is none.
    """
    import av.container.core

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(av.container.core.__file__)
        library.av_max_alloc(ctypes.c_size_t(_MAX_ALLOCATION_BYTES))


def _audio_stream(container: InputContainer, name: str) -> AudioStream:
    """The audio track that is decoded. Raises AudioError if there is none."""
    # libav passes over a track of which it has read no sound in the first seconds.
    stream = container.streams.best("audio") or next(
        (each for each in container.streams.audio if each.codec_context is not None), None
    )
    # A damaged track has no context: libav found no decoder for it.
    if stream is None or stream.codec_context is None:
        raise AudioError(_no_track(container, name))
    return cast("AudioStream", stream)


def _no_track(container: InputContainer, name: str) -> str:
    """The error message for a container without a decodable audio track."""
    if container.streams.audio:
        return f"{name} holds no audio that can be decoded: its header is damaged"
    return f"{name} holds no audio track; is it an audio or video file?"


def _announced_duration(
    container: InputContainer, stream: AudioStream, name: str, max_duration_s: float | None
) -> float:
    """The duration (s) that the header announces, if it is credible; else 0.0.

    Raises:
        AudioError: the announced rate, channels or duration are out of bounds.
        LongAudio: the header announces more than `max_duration_s`.
    """
    context = stream.codec_context
    if context.sample_rate:  # some codecs state it in their frames only
        check_format(context.sample_rate, context.channels, name)
    announced_s = _track_duration(container, stream)
    max_s = max(announced_s, (container.duration or 0) / 1e6)  # libav counts it in microseconds
    if max_s > _MAX_ANNOUNCED_S:
        raise AudioError(
            f"{name} announces {max_s / 86_400:.0f} days of audio, more than "
            f"{_MAX_ANNOUNCED_S / 86_400:.0f}; repair or re-export the recording"
        )
    if max_duration_s is not None and max_s > max_duration_s:
        raise LongAudio.of(name, max_duration_s, max_s)
    return announced_s if announced_s <= _MAX_CREDIBLE_S else 0.0


def _track_duration(container: InputContainer, stream: AudioStream) -> float:
    """The duration (s) of a track by its metadata or header; 0.0 if neither has it.

    Matroska states its end in the metadata; by its header, libav takes that of the whole file.
    """
    match = _DURATION.fullmatch(stream.metadata.get("DURATION", ""))
    if match is not None:
        hours, minutes, seconds = match.groups()
        end_s = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
        return max(0.0, end_s - (container.start_time or 0) / 1e6)
    return float(stream.duration * (stream.time_base or 0)) if stream.duration else 0.0


def _has_pictures(container: InputContainer) -> bool:
    """Whether the file is a film: it has a video track that is no cover."""
    import av

    cover = av.stream.Disposition.attached_pic
    return any(not stream.disposition & cover for stream in container.streams.video)


class _Timeline:
    """Finds the silence before a frame by its presentation time.

    Sound that starts later than the film's picture begins with silence. Sound alone begins at 0.
    """

    def __init__(self, container: InputContainer) -> None:
        self._timed = not _TIMED_FORMATS.isdisjoint(container.format.name.split(","))
        # Presentation time (s) of the output's start; None: the first frame's.
        self._origin: float | None = None
        if self._timed and container.start_time is not None and _has_pictures(container):
            self._origin = container.start_time / 1e6
        self._position = 0.0  # seconds of sound and silence so far
        self._gaps = 0.0

    def silence_before(self, frame: AudioFrame) -> float:
        """Return the seconds of silence before a frame, and count the frame."""
        gap = 0.0
        if self._timed and frame.time is not None:
            origin = frame.time - self._position if self._origin is None else self._origin
            drift = frame.time - origin - self._position
            if _LEAST_GAP_S < drift <= _MAX_GAPS_S - self._gaps:
                gap = drift
                self._gaps += gap
            elif abs(drift) > _LEAST_GAP_S:  # times that begin anew, or are damaged
                origin += drift
            self._origin = origin
        self._position += gap + frame.samples / frame.sample_rate
        return gap


def _raise_without_memory(error: Exception) -> None:
    if isinstance(error, MemoryError):
        raise error


class _StreamDecoder:
    """Iterates over the blocks of one audio stream, mono float32 at 16 kHz.

    Args:
        container: The file.
        stream: Its audio track.
        name: Of the file, in errors.
        channel: This one alone, from 0; None: all are averaged.
        keep_pairs: Yield two channels as blocks [n, 2].

    Attributes:
        damaged: a packet could not be decoded so far.
    """

    def __init__(
        self,
        container: InputContainer,
        stream: AudioStream,
        name: str,
        channel: int | None,
        keep_pairs: bool = False,
    ) -> None:
        self._container, self._stream, self._name = container, stream, name
        self._channel, self._keep_pairs = channel, keep_pairs
        self.damaged = False

    def __iter__(self) -> Iterator[Samples]:

        resampler, layout = None, None  # type: AudioResampler | None, object
        timeline = _Timeline(self._container)
        for frame in self._with_a_channel(self._frames()):
            now = (frame.format.name, frame.layout.name, frame.sample_rate)
            if now != layout:  # the format may change within a spliced file
                check_format(frame.sample_rate, frame.layout.nb_channels, self._name)
                yield from self._resample(resampler, None)
                resampler = self._resampler_of(frame)
                layout = now
            if (silence_s := timeline.silence_before(frame)) > 0:
                yield from self._resample(resampler, None)
                resampler = self._resampler_of(frame)
                yield from _silence(silence_s)
            for part in _split_frame(frame):
                part.pts = None  # the resampler would fill or reject gaps between timestamps
                yield from self._resample(resampler, part)
        yield from self._resample(resampler, None)

    def _with_a_channel(self, frames: Iterator[AudioFrame]) -> Iterator[AudioFrame]:
        """The frames; if they have two channels that cancel each other, the louder one is chosen
        before the first frame is given."""
        if self._channel is not None:
            yield from frames
            return
        first: list[AudioFrame] = []
        energies, mixed, seconds = np.zeros(2), 0.0, 0.0
        for frame in frames:
            first.append(frame)
            if frame.layout.nb_channels != 2:
                break
            channels = frame.to_ndarray().astype(np.float64)
            channels = channels if frame.format.is_planar else channels.reshape(-1, 2).T
            channels = channels - channels.mean(axis=1, keepdims=True)
            energies += np.square(channels).sum(axis=1)
            mixed += float(np.square(channels.mean(axis=0)).sum())
            seconds += frame.samples / frame.sample_rate
            if seconds >= _COMPARED_S:
                break
        if cancels(energies, mixed):
            self._channel = int(energies.argmax())
            notice(
                f"{self._name} has two channels of opposite sign, which would cancel each other: "
                "only the louder one is read",
                OppositeChannels,
                stacklevel=2,
            )
        yield from first
        yield from frames

    def _resampler_of(self, frame: AudioFrame) -> AudioResampler:
        """For frames of this layout.

        Raises:
            AudioError: there is no such channel.
        """
        import av

        if self._channel is None and self._keep_pairs and frame.layout.nb_channels == 2:
            return av.AudioResampler("fltp", frame.layout, SAMPLE_RATE)
        if self._channel is None:
            return av.AudioResampler("flt", "mono", SAMPLE_RATE, options=_MIXING)
        count = frame.layout.nb_channels
        if not 0 <= self._channel < count:
            has = "one channel" if count == 1 else f"{count} channels"
            raise AudioError(f"{self._name} has {has}: there is no channel {self._channel + 1}")
        return av.AudioResampler("fltp", frame.layout, SAMPLE_RATE)

    def _frames(self) -> Iterator[AudioFrame]:
        """Decoded frames, up to the end of the stream or an error of the container."""
        import av

        context = self._stream.codec_context
        context.options = {"max_samples": str(_MAX_FRAME_SAMPLES // max(1, context.channels))}
        packets = self._container.demux(self._stream)
        end = None  # of the last packet, in bytes of the file
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except IndexError:
                # A packet of a track that the file announces only now, which PyAV does not know.
                packets = self._container.demux(self._stream)
                continue
            except av.FFmpegError as error:
                _raise_without_memory(error)
                # libav takes the regular end of some containers (Westwood's aud) for an error.
                self.damaged |= end != self._container.size
                return
            if packet.pos is not None:
                end = packet.pos + packet.size
            if not packet.size and packet.pts is not None:
                continue  # nut ends flac with one; the decoder would take it for the end
            try:
                frames: list[Any] = packet.decode()
            except av.FFmpegError as error:
                _raise_without_memory(error)
                self.damaged = True
                continue
            # The end mark of ADX becomes a frame without samples.
            yield from (frame for frame in frames if frame.samples)

    def _resample(
        self, resampler: AudioResampler | None, frame: AudioFrame | None
    ) -> Iterator[Samples]:
        """Resample a frame; None flushes the resampler."""
        if resampler is None:
            return
        import av

        try:
            mixed = resampler.resample(frame)
        except av.FFmpegError as error:
            _raise_without_memory(error)
            channels = f" ({frame.layout.name})" if frame is not None else ""
            raise AudioError(
                f"{self._name} has channels{channels} that cannot be mixed into one: "
                "export it as mono or stereo"
            ) from None
        for each in mixed:
            if self._channel is None and each.layout.nb_channels == 2:
                yield np.ascontiguousarray(each.to_ndarray().T, dtype=np.float32)
            else:
                yield frame_samples(each, self._channel or 0)


def _silence(seconds: float) -> Iterator[Samples]:
    """Silence in blocks of at most MAX_BLOCK samples."""
    left = round(seconds * SAMPLE_RATE)
    while left > 0:
        yield np.zeros(min(left, MAX_BLOCK), np.float32)
        left -= MAX_BLOCK


def _split_frame(frame: AudioFrame) -> Iterator[AudioFrame]:
    """A frame in copies of at most MAX_BLOCK samples each; the frame itself if it is short."""
    if frame.samples <= MAX_BLOCK:
        yield frame
        return
    from av import AudioFrame

    channels = 1 if frame.format.is_planar else frame.layout.nb_channels
    width = frame.format.bytes * channels  # bytes of one sample in a plane
    planes = [memoryview(plane) for plane in frame.planes]
    for start in range(0, frame.samples, MAX_BLOCK):
        count = min(MAX_BLOCK, frame.samples - start)
        part = AudioFrame(format=frame.format.name, layout=frame.layout, samples=count)
        part.sample_rate = frame.sample_rate
        for source, plane in zip(planes, part.planes, strict=True):
            plane.update(bytes(source[start * width : (start + count) * width]))
        yield part
