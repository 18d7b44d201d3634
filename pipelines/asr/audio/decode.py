"""Any audio in, mono float32 at 16 kHz out. Decoding is PyAV's: no system ffmpeg is needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pipelines.asr.audio.arrays import (
    LOUDEST,
    SAMPLE_RATE,
    STEP,
    Block,
    LoudAudio,
    SampleBuffer,
    Samples,
    as_mono,
    check_format,
    peak_of,
)
from pipelines.asr.audio.resample import read_blocks, resampled, samples_of
from pipelines.errors import AudioError, LongAudio
from pipelines.notices import notice

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream
    from av.container import InputContainer

__all__ = ["AudioSource", "DamagedAudio", "decode_path", "is_stream", "load_audio"]

_SPOOL_BYTES = 32 << 20  # a pipe is kept in memory up to this size, then in a temporary file
# libav mixes floats louder than integers, which openai-whisper reads: by 3 dB for two channels, by
# 11 for six. With this it mixes them alike.
_MIXING = {"rematrix_maxval": "1.0"}
# A header that announces more than this may have been written before the length was known:
# that the file is shorter does not mean that it broke off.
_BELIEVED_S = 6 * 3600.0
_ABSURD_S = 30 * 86_400.0  # 165 GB of samples: a header that announces more is refused
_MOST_IN_FRAME = 1 << 24  # samples of all channels that one frame may decode to
# libav decodes the first frames, those of covers and films too, while it opens a file.
_LARGEST_PICTURE = 1 << 26  # pixels

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

    longest_s: what is longer is refused: where the header says so, before it is decoded; files
        need not tell, so else as soon as so much has been decoded.

    Samples beyond ±LOUDEST (16) are no floats in -1…1: the recording is divided by its peak, with
    a LoudAudio warning. Smaller overs stay as they are.

    Warns with DamagedAudio when a file breaks off or has holes. Raises AudioError when there is
    nothing to decode, when samples are not finite, or when the sample rate, the channels or the
    announced length are none that a recording has; LongAudio, which is one, when there is too
    much.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return _gathered(decode_path(path, path, longest_s), path, longest_s)
    if isinstance(source, (np.ndarray, tuple)):
        return _load_array(source, longest_s)
    if hasattr(source, "read"):
        name = _name_of(source)
        return _gathered(_decode_file(source, name, longest_s), name, longest_s)
    return _gathered(read_blocks(source, clip=False), "the audio stream", longest_s)


def _gathered(blocks: Iterable[Samples], name: str, longest_s: float | None) -> Samples:
    buffer = SampleBuffer(name, longest_s)
    for block in blocks:
        buffer.append(block)
    if (said := buffer.loudness_warning()) is not None:
        notice(said, LoudAudio, stacklevel=3)
    return buffer.finish()


def _load_array(source: Block, longest_s: float | None) -> Samples:
    name = "the audio array"
    rate, samples = as_mono(source, name)
    pieces = [samples[start : start + STEP] for start in range(0, len(samples), STEP)]
    if rate != SAMPLE_RATE or any(peak_of(piece, name) > LOUDEST for piece in pieces):
        return _gathered(resampled(pieces, rate), name, longest_s)
    if longest_s is not None and len(samples) > longest_s * SAMPLE_RATE:
        raise LongAudio.of(name, longest_s)
    return samples  # not copied


def decode_path(path: str, name: str, longest_s: float | None = None) -> Iterator[Samples]:
    """The blocks of an audio file, mono float32 at 16 kHz, as they are decoded.

    Args:
        path: an audio or video file.
        name: what errors and warnings call it.
        longest_s: a header that announces more seconds is refused.

    Raises:
        AudioError: the file cannot be read or decoded, or its header is absurd.
        LongAudio: it announces more than `longest_s`. What is decoded is not measured.
    """
    try:
        # Our own file object: libav would read "a:b.wav" or "http:x" as a protocol.
        with Path(path).open("rb") as file:
            yield from _decode_file(file, name, longest_s)
    except FileNotFoundError:
        raise AudioError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise AudioError(f"{name} is a folder, not an audio file") from None
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {error.strerror or error}") from error


def _name_of(file: object) -> str:
    name = getattr(file, "name", None)  # a number where the file was opened from a descriptor
    return name if isinstance(name, str) else "the audio stream"


def _decode_file(file: Any, name: str, longest_s: float | None) -> Iterator[Samples]:
    samples = 0
    try:
        with _seekable(file) as source, _open(source, name) as container:
            stream = container.streams.best("audio")
            if stream is None:
                raise AudioError(_no_track(container, name))
            stream = cast("AudioStream", stream)
            announced = _checked_duration(container, stream, name, longest_s)
            blocks = _Decoding(container, stream, name)
            for block in blocks:
                samples += len(block)
                yield block
    except MemoryError:
        raise AudioError(f"{name} needs more memory to be decoded than there is") from None
    if not samples:
        raise AudioError(f"{name} holds no audio that can be decoded: it is empty or damaged")
    got = samples / SAMPLE_RATE
    if blocks.damaged or got < announced - max(0.5, 0.01 * announced):
        of = f" of the {announced:.1f} s it announces" if got < announced - 0.05 else ""
        notice(
            f"{name} is damaged or breaks off: {got:.1f} s{of} could be decoded",
            DamagedAudio,
            stacklevel=2,
        )


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
    options = {
        "protocol_whitelist": "",
        "max_samples": str(_MOST_IN_FRAME),
        "max_pixels": str(_LARGEST_PICTURE),
    }
    try:
        container = av.open(file, mode="r", metadata_errors="ignore", options=options)
    except (av.FFmpegError, ValueError, UnicodeError) as error:
        if isinstance(error, MemoryError):
            raise
        empty = file.seek(0, os.SEEK_END) == 0
        why = "is empty" if empty else "is not audio that can be decoded, or is damaged"
        raise AudioError(f"{name} {why}") from None
    with container:
        yield container


def _no_track(container: InputContainer, name: str) -> str:
    if container.streams.audio:
        return f"{name} holds no audio that can be decoded: its header is damaged"
    return f"{name} holds no audio track; is it an audio or video file?"


def _checked_duration(
    container: InputContainer, stream: AudioStream, name: str, longest_s: float | None
) -> float:
    """The seconds that a header announces, where they can be believed; else 0.0.

    Raises:
        AudioError: the header announces a rate, channels or a length that no recording has.
        LongAudio: it announces more than `longest_s`.
    """
    context = stream.codec_context
    if context.sample_rate:  # some codecs tell it in their frames only
        check_format(context.sample_rate, context.channels, name)
    announced = float(stream.duration * (stream.time_base or 0)) if stream.duration else 0.0
    longest = max(announced, (container.duration or 0) / 1e6)  # libav counts it in microseconds
    if longest > _ABSURD_S:
        raise AudioError(
            f"{name} announces {longest / 86_400:.0f} days of audio, more than "
            f"{_ABSURD_S / 86_400:.0f}; repair or re-export the recording"
        )
    if longest_s is not None and longest > longest_s:
        raise LongAudio.of(name, longest_s, longest)
    return announced if announced <= _BELIEVED_S else 0.0


class _Decoding:
    """Iterates over the blocks of one stream, mono float32 at 16 kHz, to its end or to where it
    breaks. damaged: whether anything could not be decoded so far."""

    def __init__(self, container: InputContainer, stream: AudioStream, name: str) -> None:
        self._container, self._stream, self._name = container, stream, name
        self.damaged = False

    def __iter__(self) -> Iterator[Samples]:
        import av

        resampler, layout = None, None  # type: AudioResampler | None, object
        for frame in self._frames():
            now = (frame.format.name, frame.layout.name, frame.sample_rate)
            if now != layout:  # spliced files change format on the way
                check_format(frame.sample_rate, frame.layout.nb_channels, self._name)
                yield from self._resample(resampler, None)
                resampler = av.AudioResampler("flt", "mono", SAMPLE_RATE, options=_MIXING)
                layout = now
            for part in _parts(frame):
                part.pts = None  # gaps in the clock would be filled or refused
                yield from self._resample(resampler, part)
        yield from self._resample(resampler, None)

    def _frames(self) -> Iterator[AudioFrame]:
        import av

        context = self._stream.codec_context
        context.options = {"max_samples": str(_MOST_IN_FRAME // max(1, context.channels))}
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except av.FFmpegError as error:
                self._note(error)
                return
            try:
                frames: list[Any] = packet.decode()
            except av.FFmpegError as error:
                self._note(error)
                continue
            yield from frames

    def _note(self, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise error
        self.damaged = True

    def _resample(
        self, resampler: AudioResampler | None, frame: AudioFrame | None
    ) -> Iterator[Samples]:
        if resampler is None:
            return
        import av

        try:
            mixed = resampler.resample(frame)
        except av.FFmpegError as error:
            if isinstance(error, MemoryError):
                raise
            channels = f" ({frame.layout.name})" if frame is not None else ""
            raise AudioError(
                f"{self._name} has channels{channels} that cannot be mixed into one: "
                "export it as mono or stereo"
            ) from None
        yield from map(samples_of, mixed)


def _parts(frame: AudioFrame) -> Iterator[AudioFrame]:
    """A frame in parts of at most STEP samples, copied one by one; itself where it is short."""
    if frame.samples <= STEP:
        yield frame
        return
    from av import AudioFrame

    channels = 1 if frame.format.is_planar else frame.layout.nb_channels
    width = frame.format.bytes * channels  # of one sample in a plane
    planes = [memoryview(plane) for plane in frame.planes]
    for start in range(0, frame.samples, STEP):
        count = min(STEP, frame.samples - start)
        part = AudioFrame(format=frame.format.name, layout=frame.layout, samples=count)
        part.sample_rate = frame.sample_rate
        for source, plane in zip(planes, part.planes, strict=True):
            plane.update(bytes(source[start * width : (start + count) * width]))
        yield part
