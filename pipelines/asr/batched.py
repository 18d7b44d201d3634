"""Transcription of a recording in chunks, cut at pauses and decoded in parallel."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk, split_at_pauses
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import FRAMES_PER_SECOND, ChunkFeatures
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.decode_tasks import ChunkTask, DecodeTask, run_interleaved
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.recognizer import Recognizer
from pipelines.asr.results import SegmentDone, TranscriptEvent, TranscriptionInfo
from pipelines.errors import AudioError

__all__ = ["transcribe_batched"]

_BLOCK = 30 * SAMPLE_RATE  # samples


def transcribe_batched(
    recognizer: Recognizer, audio: AudioSource, options: TranscribeOptions
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording as `Transcriber.stream` yields them, in the recording's order.

    Args:
        recognizer: The model.
        audio: The recording; an iterable of blocks is read as far ahead as chunks are decoded.
        options: How to transcribe; `batch_size` chunks are decoded in parallel.

    Raises:
        AudioError: There is no audio to decode. Raised before decoding starts; for an iterable,
            when the block at fault is reached.
    """
    if is_stream(audio):
        return _events(recognizer, read_blocks(audio), None, options)
    samples = load_audio(audio)
    if not len(samples):
        raise AudioError("the audio array is empty")
    blocks = (samples[at : at + _BLOCK] for at in range(0, len(samples), _BLOCK))
    return _events(recognizer, blocks, len(samples) / SAMPLE_RATE, options)


def _events(
    recognizer: Recognizer,
    blocks: Iterable[Samples],
    duration: float | None,
    options: TranscribeOptions,
) -> Generator[TranscriptEvent, None, None]:
    window_s = recognizer.window_s
    chunks = split_at_pauses(blocks, min(options.chunk_s or window_s, window_s))
    language, probability = recognizer.given_language(options), None
    if language is None:
        first = next(chunks, None)
        detected_in = first or Chunk(0, 0, 0, np.zeros(0, np.float32))
        first_window = _chunk_features(recognizer, detected_in).first_window()
        language, probability = next(iter(recognizer.language_probs(first_window).items()))
        chunks = chain(() if first is None else (first,), chunks)
    yield TranscriptionInfo(language, probability, duration)
    tasks = _chunk_tasks(recognizer, chunks, language, options)
    count = 0
    for event in run_interleaved(tasks, recognizer.model.encode, options.batch_size):
        if isinstance(event, SegmentDone):
            event = SegmentDone(replace(event.segment, id=count))
            count += 1
        yield event


def _chunk_tasks(
    recognizer: Recognizer, chunks: Iterator[Chunk], language: str, options: TranscribeOptions
) -> Iterator[ChunkTask]:
    last_speech = 0.0  # seconds at which the chunk before ended
    for chunk in chunks:
        start, stop = chunk.start_frame / FRAMES_PER_SECOND, chunk.end_frame / FRAMES_PER_SECOND

        def begin(chunk: Chunk = chunk, last_speech: float = last_speech) -> DecodeTask:
            features = _chunk_features(recognizer, chunk)
            return recognizer.decode_task(
                features, language, options, chunk.start_frame, last_speech
            )

        yield ChunkTask(begin, f"the speech from {start:.1f} to {stop:.1f} s")
        last_speech = stop


def _chunk_features(recognizer: Recognizer, chunk: Chunk) -> ChunkFeatures:
    return ChunkFeatures(
        chunk.samples,
        chunk.offset,
        chunk.start_frame,
        chunk.end_frame,
        recognizer.model.architecture.num_mel_bins,
        recognizer.window_frames,
    )
