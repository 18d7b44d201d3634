"""A recording in chunks of speech that need not be decoded in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, zip_longest

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk, split_at_pauses
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import HOP
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.two_channels import RecordingSection, judged_blocks, sections_of
from pipelines.errors import AudioError

_BLOCK = 30 * SAMPLE_RATE  # samples


def split_recording(
    audio: AudioSource, options: TranscribeOptions, window_s: float
) -> Iterator[Chunk]:
    """The chunks in which a recording is transcribed.

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
    audio, judged = judged_blocks(audio)
    blocks = audio_blocks(audio)[0] if judged is None else judged
    return _chunks_of_sections(sections_of(only_clips(blocks, options)), options, window_s)


def _chunks_of_sections(
    sections: Iterable[RecordingSection], options: TranscribeOptions, window_s: float
) -> Iterator[Chunk]:
    options = replace(options, clip_timestamps=())  # the sections are cut by them
    for section in sections:
        if isinstance(section.sound, np.ndarray):
            chunks = iter([Chunk(0, section.length // HOP, 0, section.sound, 1)])
        else:
            chunks = chunks_of_blocks(read_blocks(section.sound), options, window_s)
        for each in chunks:
            yield replace(each, section=section.number, section_start=section.start)


def sections_of_chunks(chunks: Iterable[Chunk]) -> Iterator[RecordingSection]:
    """Return the sections that chunks of a recording belong to; without chunks an empty one."""

    def place(each: Chunk) -> tuple[int, int, bool]:
        return each.section, each.section_start, each.samples.ndim == 2

    section = None
    for (number, start, two), group in groupby(chunks, place):
        sound = next(group).samples if two else group  # noqa: B031  # once
        section = RecordingSection(number, start, sound, whole=two)
        yield section
    if section is None:
        yield RecordingSection(0, 0, iter(()), whole=False)


def audio_blocks(audio: AudioSource) -> tuple[Iterable[Samples], float | None]:
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
) -> Iterator[Chunk]:
    """As split_recording, of `audio_blocks`."""
    limits = (options.chunk_s, options.vad.max_speech_duration_s, window_s)
    max_chunk_s = min(limit for limit in limits if limit is not None)
    return split_at_pauses(only_clips(blocks, options), max_chunk_s, options.vad)


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
