"""Transcription of a recording in chunks, cut at pauses and decoded in parallel."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain, zip_longest

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import CHUNK_VAD, Chunk, split_at_pauses
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.audio.vad import VadOptions
from pipelines.asr.chunk_tasks import ChunkTask, decode_chunks
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.recognizer import Recognizer
from pipelines.asr.results import (
    Checkpoint,
    SegmentDone,
    TranscriptEvent,
    TranscriptionInfo,
)
from pipelines.asr.sequential import DecodeTask
from pipelines.asr.wrapped import WrappedRecognizer
from pipelines.errors import AudioError

__all__ = ["transcribe_batched"]

_BLOCK = 30 * SAMPLE_RATE  # samples
_LONG_S = 600.0  # of a longer recording the first text comes early, at the cost of a second


def transcribe_batched(
    recognizer: Recognizer | WrappedRecognizer,
    audio: AudioSource,
    options: TranscribeOptions,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = False,
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording as `Transcriber.stream` yields them, in the recording's order.

    Args:
        recognizer: The model.
        audio: The recording; an iterable of blocks is read as far ahead as chunks are decoded.
        options: How to transcribe; `batch_size` chunks are decoded in parallel.
        resume_from: Where an earlier run stopped.
        checkpoints: Yield a Checkpoint after each chunk, as long as none has failed.

    Raises:
        AudioError: There is no audio to decode. Raised before decoding starts; for an iterable,
            when the block at fault is reached.
    """
    if is_stream(audio):
        length_s = getattr(audio, "duration_s", None)  # an AudioFile has one
        return _events(
            recognizer, read_blocks(audio), None, options, resume_from, checkpoints,
            is_long=(length_s or 0) > _LONG_S,
        )  # fmt: skip
    samples = load_audio(audio)
    if not len(samples):
        raise AudioError("the audio array is empty")
    blocks = (samples[at : at + _BLOCK] for at in range(0, len(samples), _BLOCK))
    duration = len(samples) / SAMPLE_RATE
    return _events(
        recognizer, blocks, duration, options, resume_from, checkpoints, is_long=duration > _LONG_S
    )


def _events(
    recognizer: Recognizer | WrappedRecognizer,
    blocks: Iterable[Samples],
    duration: float | None,
    options: TranscribeOptions,
    resume_from: Checkpoint | None,
    checkpoints: bool,
    *,
    is_long: bool,
) -> Generator[TranscriptEvent, None, None]:
    chunks = split_at_pauses(
        _only_clips(blocks, options), _max_chunk_s(recognizer, options), _vad_options(options)
    )
    language, probability = recognizer.given_language(options), None
    done = 0
    if resume_from is not None:
        language, done = resume_from.language, resume_from.chunks
    if language is None:
        assert isinstance(recognizer, Recognizer), "a wrapped model has one language"
        first = next(chunks, None)
        detected_in = first or Chunk(0, 0, 0, np.zeros(0, np.float32))
        first_window = recognizer.chunk_features(detected_in).first_window()
        language, probability = next(iter(recognizer.language_probs(first_window).items()))
        chunks = chain(() if first is None else (first,), chunks)
    yield TranscriptionInfo(language, probability, duration)
    tasks = _chunk_tasks(recognizer, chunks, language, options, done)
    count = 0 if resume_from is None else resume_from.segments
    with closing(decode_chunks(tasks, options.batch_size, first_alone=is_long)) as events:
        for event in events:
            if isinstance(event, SegmentDone):
                event = SegmentDone(replace(event.segment, id=count))
                count += 1
            elif isinstance(event, Checkpoint):
                if event.chunks != done + 1:
                    continue  # a chunk before it has failed
                done = event.chunks
                if not checkpoints:
                    continue
                event = replace(event, segments=count, language=language)
            yield event


def _only_clips(blocks: Iterable[Samples], options: TranscribeOptions) -> Iterator[Samples]:
    """The blocks, silent outside of `clip_timestamps`."""
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


def _max_chunk_s(recognizer: Recognizer | WrappedRecognizer, options: TranscribeOptions) -> float:
    limits = (options.chunk_s, options.vad_max_speech_duration_s, recognizer.window_s)
    return min(limit for limit in limits if limit is not None)


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


def _chunk_tasks(
    recognizer: Recognizer | WrappedRecognizer,
    chunks: Iterator[Chunk],
    language: str,
    options: TranscribeOptions,
    done: int,
) -> Iterator[ChunkTask]:
    """The tasks of the chunks after the first `done` ones. Each ends with a Checkpoint."""
    last_speech = 0.0  # seconds at which the chunk before ended
    for number, chunk in enumerate(chunks, start=1):
        start, stop = chunk.start_frame / FRAMES_PER_SECOND, chunk.end_frame / FRAMES_PER_SECOND

        def begin(
            number: int = number, chunk: Chunk = chunk, last_speech: float = last_speech
        ) -> DecodeTask:
            yield from recognizer.decode_chunk(
                chunk,
                language,
                options,
                begins_recording=number == 1,
                last_speech=last_speech,
            )
            yield Checkpoint(0, chunks=number)

        if number > done:
            yield ChunkTask(begin, f"the speech from {start:.1f} to {stop:.1f} s")
        last_speech = stop
