"""Several pieces of a recording decoded side by side, cut at the pauses of the speech."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk, split_at_pauses
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import FRAMES_PER_SECOND, ChunkFeatures
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.decode_tasks import ChunkTask, DecodeTask, run_interleaved
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import SegmentDone, TranscriptEvent, TranscriptionInfo
from pipelines.errors import AudioError

if TYPE_CHECKING:
    from pipelines.asr.transcriber import Transcriber

__all__ = ["transcribe_batched"]

_BLOCK = 30 * SAMPLE_RATE


def transcribe_batched(
    transcriber: Transcriber, audio: AudioSource, options: TranscribeOptions
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording, as Transcriber.stream gives them, in the order of the recording.

    Raises AudioError before anything is decoded; of an iterable, later, when a block is no audio.
    """
    if is_stream(audio):
        return _events(transcriber, read_blocks(audio), None, options)
    samples = load_audio(audio)
    if not len(samples):
        raise AudioError("the audio array is empty")
    blocks = (samples[at : at + _BLOCK] for at in range(0, len(samples), _BLOCK))
    return _events(transcriber, blocks, len(samples) / SAMPLE_RATE, options)


def _events(
    transcriber: Transcriber,
    blocks: Iterable[Samples],
    duration: float | None,
    options: TranscribeOptions,
) -> Generator[TranscriptEvent, None, None]:
    found = split_at_pauses(
        blocks, min(options.chunk_s or transcriber.window_s, transcriber.window_s)
    )
    language, chance = transcriber.given_language(options), None  # type: str | None, float | None
    if language is None:
        first = next(found, None)
        heard = first or Chunk(0, 0, 0, np.zeros(0, np.float32))
        chances = transcriber.language_probs(_chunk_features(transcriber, heard).opening())
        language, chance = next(iter(chances.items()))
        found = chain(() if first is None else (first,), found)
    yield TranscriptionInfo(language, chance, duration)
    pieces = _chunk_tasks(transcriber, found, language, options)
    count = 0
    for event in run_interleaved(pieces, transcriber.model.encode, options.batch_size):
        if isinstance(event, SegmentDone):
            event = SegmentDone(replace(event.segment, id=count))
            count += 1
        yield event


def _chunk_tasks(
    transcriber: Transcriber, found: Iterator[Chunk], language: str, options: TranscribeOptions
) -> Iterator[ChunkTask]:
    last_speech = 0.0
    for chunk in found:
        start, stop = chunk.first / FRAMES_PER_SECOND, chunk.last / FRAMES_PER_SECOND

        def begin(chunk: Chunk = chunk, last_speech: float = last_speech) -> DecodeTask:
            features = _chunk_features(transcriber, chunk)
            return transcriber.decode_task(features, language, options, chunk.first, last_speech)

        yield ChunkTask(begin, f"what is said from {start:.1f} to {stop:.1f} s")
        last_speech = stop


def _chunk_features(transcriber: Transcriber, chunk: Chunk) -> ChunkFeatures:
    architecture = transcriber.model.architecture
    return ChunkFeatures(
        chunk.samples,
        chunk.offset,
        chunk.first,
        chunk.last,
        architecture.num_mel_bins,
        2 * architecture.max_source_positions,
    )
