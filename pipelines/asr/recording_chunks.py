"""A recording in chunks of speech that need not be decoded in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import CHUNK_VAD, Chunk, split_at_pauses
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.audio.vad import VadOptions
from pipelines.asr.options import TranscribeOptions
from pipelines.errors import AudioError

__all__ = ["RecordingChunk", "chunks_of_blocks", "only_clips", "sound_blocks", "split_recording"]

_BLOCK = 30 * SAMPLE_RATE  # samples


@dataclass(frozen=True, eq=False)
class RecordingChunk:
    """A chunk of a recording.

    Attributes:
        number: From 1.
        chunk: Its sound.
        last_speech_s: When the speech of the chunk before it ended (seconds of the recording).
    """

    number: int
    chunk: Chunk
    last_speech_s: float

    @property
    def start_s(self) -> float:
        """When it begins (seconds of the recording)."""
        return self.chunk.start_frame / FRAMES_PER_SECOND

    @property
    def end_s(self) -> float:
        """When it ends (seconds of the recording)."""
        return self.chunk.end_frame / FRAMES_PER_SECOND


def split_recording(
    audio: AudioSource, options: TranscribeOptions, window_s: float
) -> Iterator[RecordingChunk]:
    """The chunks in which a recording is transcribed with a batch size above 1.

    Args:
        audio: What `load_audio` accepts; an iterable of blocks is read only as far as needed.
        options: Say what counts as speech, and how long a chunk may be.
        window_s: Of the model: Transcriber.window_s.

    Returns:
        The chunks in order, for `Transcriber.stream_chunks`.

    Raises:
        AudioError: There is no audio to decode; for an iterable, after the chunks before the block
            at fault.
    """
    return chunks_of_blocks(sound_blocks(audio)[0], options, window_s)


def sound_blocks(audio: AudioSource) -> tuple[Iterable[Samples], float | None]:
    """A recording as blocks of samples [n], and its seconds; None for an iterable of blocks.

    Raises:
        AudioError: There is no audio to decode.
    """
    if is_stream(audio):
        return read_blocks(audio), None
    samples = load_audio(audio)
    if not len(samples):
        raise AudioError("the audio array is empty")
    blocks = (samples[at : at + _BLOCK] for at in range(0, len(samples), _BLOCK))
    return blocks, len(samples) / SAMPLE_RATE


def chunks_of_blocks(
    blocks: Iterable[Samples], options: TranscribeOptions, window_s: float
) -> Iterator[RecordingChunk]:
    """As split_recording, of `sound_blocks`."""
    limits = (options.chunk_s, options.vad_max_speech_duration_s, window_s)
    max_chunk_s = min(limit for limit in limits if limit is not None)
    last_speech_s = 0.0
    chunks = split_at_pauses(only_clips(blocks, options), max_chunk_s, _vad_options(options))
    for number, chunk in enumerate(chunks, start=1):
        yield RecordingChunk(number, chunk, last_speech_s)
        last_speech_s = chunk.end_frame / FRAMES_PER_SECOND


def only_clips(blocks: Iterable[Samples], options: TranscribeOptions) -> Iterator[Samples]:
    """Return the blocks, [n] or [n, 2], silent outside of `clip_timestamps`."""
    points = [round(seconds * SAMPLE_RATE) for seconds in options.clip_timestamps]
    if not points:
        yield from blocks
        return
    starts, ends = points[::2], points[1::2]
    at = 0
    for block in blocks:
        kept = np.zeros_like(block)
        for start, end in zip_longest(starts, ends, fillvalue=at + len(block)):
            span = slice(max(0, start - at), max(0, end - at))
            kept[span] = block[span]
        at += len(block)
        yield kept


def _vad_options(options: TranscribeOptions) -> VadOptions:
    """What counts as speech: the `vad_` options, and defaults that lose no speech at a cut."""
    milliseconds = {
        "pre_roll_s": options.vad_speech_pad_ms,
        "min_speech_s": options.vad_min_speech_duration_ms,
        "min_silence_s": options.vad_min_silence_duration_ms,
    }
    given: dict[str, float] = {k: v / 1000 for k, v in milliseconds.items() if v is not None}
    if options.vad_threshold is not None:
        given["threshold"] = options.vad_threshold
    if options.vad_neg_threshold is not None:
        given["neg_threshold"] = options.vad_neg_threshold
    return replace(CHUNK_VAD, **given)
