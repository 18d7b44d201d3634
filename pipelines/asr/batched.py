"""Transcription of a recording in chunks, cut at pauses and decoded in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import numpy as np

from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.decode import AudioSource
from pipelines.asr.audio.left_out import LeftOutSound
from pipelines.asr.chunk_recognizer import ChunkRecognizer
from pipelines.asr.chunk_tasks import ChunkTask, decode_chunks
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.recognizer import Recognizer
from pipelines.asr.recording_chunks import RecordingChunk, chunks_of_blocks, sound_blocks
from pipelines.asr.results import (
    Checkpoint,
    LeftOut,
    SegmentDone,
    TranscriptEvent,
    TranscriptionInfo,
)
from pipelines.asr.sequential import DecodeTask
from pipelines.engine import SourceHandle

_LONG_S = 600.0  # of a longer recording the first text comes early, at the cost of a second


def transcribe_batched(
    recognizer: Recognizer | ChunkRecognizer,
    audio: AudioSource,
    options: TranscribeOptions,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = False,
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording as `Transcriber.stream` yields them, in the recording's order.

    Args:
        recognizer: The model.
        audio: The recording; an iterable of blocks is read as far ahead as chunks are decoded.
        options: How to transcribe; `parallel_chunks` are decoded in parallel.
        resume_from: Where an earlier run stopped.
        checkpoints: Yield a Checkpoint after each chunk, as long as none has failed.

    Raises:
        AudioError: There is no audio to decode. Raised before decoding starts; for an iterable,
            when the block at fault is reached.
    """
    blocks, duration = sound_blocks(audio)
    length_s = duration or getattr(audio, "duration_s", None) or 0.0  # an AudioFile has one
    left_out = LeftOutSound()
    if not options.clip_timestamps:
        blocks = left_out.measured(blocks)
    chunks = _noted(chunks_of_blocks(blocks, options, recognizer.window_s), left_out)
    events = transcribe_chunks(
        recognizer, chunks, options, resume_from, checkpoints,
        duration_s=duration, first_alone=length_s > _LONG_S,
    )  # fmt: skip
    return _with_left_out(events, left_out)


def _noted(chunks: Iterable[RecordingChunk], left_out: LeftOutSound) -> Iterator[RecordingChunk]:
    """Pass on chunks, and note that they are recognized."""
    for each in chunks:
        left_out.keep(each.start_s, each.end_s)
        yield each


def _with_left_out(
    events: Generator[TranscriptEvent, None, None], left_out: LeftOutSound
) -> Generator[TranscriptEvent, None, None]:
    """Return the events, and at the end what was left out although it sounds like speech."""
    with closing(events):
        yield from events
    if seconds := left_out.seconds:
        yield LeftOut(seconds, left_out.duration_s)


def transcribe_chunks(
    recognizer: Recognizer | ChunkRecognizer,
    chunks: Iterator[RecordingChunk],
    options: TranscribeOptions,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = True,
    *,
    duration_s: float | None = None,
    first_alone: bool = False,
) -> Generator[TranscriptEvent, None, None]:
    """As `transcribe_batched`, of consecutive chunks.

    Args:
        recognizer: The model.
        chunks: Of one recording; those up to `resume_from` are left out.
        options: How to transcribe.
        resume_from: What comes before.
        checkpoints: As for transcribe_batched.
        duration_s: Of the recording, if it is known.
        first_alone: As for decode_chunks.
    """
    language, probability, probs = recognizer.given_language(options), None, None
    count = done = 0
    if resume_from is not None:
        language, done, count = resume_from.language, resume_from.chunks, resume_from.segments
    sources: deque[SourceHandle] = deque()  # of the first chunks, where their language is detected
    if language is None:
        assert isinstance(recognizer, Recognizer), "the other models have one language"
        heads = list(islice(chunks, options.language_detection_segments))
        empty = Chunk(0, 0, 0, np.zeros(0, np.float32))
        for sound in [each.chunk for each in heads] or [empty]:
            window, _ = recognizer.chunk_features(sound).window(sound.start_frame)
            sources.append(recognizer.drafting.source(window))
        language, probability, probs = recognizer.detect_language(
            (source.encoded for source in sources), options
        )
        chunks = chain(heads, chunks)
    yield TranscriptionInfo(
        language,
        probability,
        duration_s,
        all_language_probs=None if probs is None else tuple(probs.items()),
    )

    def decoder() -> Callable[..., DecodeTask]:
        if not sources:
            return recognizer.decode_chunk
        assert isinstance(recognizer, Recognizer), "only its languages are detected"
        return partial(recognizer.decode_chunk, first_window=sources.popleft())

    tasks = (
        _chunk_task(decoder(), each, language, options) for each in chunks if each.number > done
    )
    with closing(decode_chunks(tasks, options.parallel_chunks, first_alone)) as events:
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


def _chunk_task(
    decode: Callable[..., DecodeTask],
    part: RecordingChunk,
    language: str,
    options: TranscribeOptions,
) -> ChunkTask:
    """The task of a chunk, which `decode` makes. It ends with a Checkpoint."""

    def begin() -> DecodeTask:
        yield from decode(
            part.chunk,
            language,
            options,
            begins_recording=part.number == 1,
            last_speech=part.last_speech_s,
        )
        yield Checkpoint(0, chunks=part.number)

    return ChunkTask(begin, f"the speech from {part.start_s:.1f} to {part.end_s:.1f} s")
