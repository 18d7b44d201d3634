"""Recordings of any length, window after window; after openai-whisper's transcribe.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelines.asr.audio.features import FRAMES_PER_SECOND, WindowFeatures
from pipelines.asr.decode_tasks import DecodeTask, EncodeRequest
from pipelines.asr.results import Retract, Segment, SegmentDone
from pipelines.asr.timestamps import TokenSpan, split_at_timestamps
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder, WindowResult
from pipelines.asr.word_timestamps import WordAligner
from pipelines.errors import NumericalError

__all__ = ["decode_windows"]


def decode_windows(
    features: WindowFeatures,
    decoder: WindowDecoder,
    tokenizer: WhisperTokenizer,
    *,
    initial_prompt: Sequence[int],
    condition: bool,
    seed: int | None,
    aligner: WordAligner | None = None,
    start: int = 0,
) -> DecodeTask:
    """Decode a recording from start to end, moving on by what each window's timestamps say.

    start: its first frame. initial_prompt: tokens put before the first window, and kept as long
    as they fit. condition: let previous text be the prompt, unless a window needed a temperature
    above 0.5. aligner: finds the words' times; then a window that was cut off goes on where its
    last word ends.

    Raises NumericalError with the times of a window for which the model computes NaN or infinity.
    """
    seek, count = start, 0
    history = list(initial_prompt)
    remembered_from = 0  # history before this is not shown to the decoder any more
    while True:
        mel, frames = features.window(seek)
        if frames == 0:
            return
        encoded = yield EncodeRequest(mel)
        assert encoded is not None, "whoever runs a course encodes what it wants to hear"
        try:
            result = yield from decoder.decode(
                encoded,
                history[remembered_from:],
                None if seed is None else seed + seek,
            )
        except NumericalError as error:
            begin, end = seek / FRAMES_PER_SECOND, (seek + frames) / FRAMES_PER_SECOND
            raise NumericalError(
                f"what is said from {begin:.1f} to {end:.1f} s could not be recognised: {error}"
            ) from error
        if decoder.is_silent(result):
            if decoder.is_visible(result):
                yield Retract()
            seek += frames
            continue
        spans, advance = split_at_timestamps(
            result.tokens, tokenizer.special.timestamp_begin, frames
        )
        segments = [
            _segment(number, seek, span, result, tokenizer)
            for number, span in enumerate(spans, count)
        ]
        if aligner is not None:
            segments = aligner.add(segments, encoded, frames)
            end = next((s.words[-1].end for s in reversed(segments) if s.words), segments[-1].end)
            single = [t >= tokenizer.special.timestamp_begin for t in result.tokens[-2:]]
            if single != [False, True] and end > seek / FRAMES_PER_SECOND:
                advance = round(end * FRAMES_PER_SECOND) - seek
        for segment in map(_without_empty_text, segments):
            history.extend(segment.tokens)
            yield SegmentDone(segment)
        count += len(segments)
        if not condition or result.temperature > 0.5:
            remembered_from = len(history)
        seek += advance


def _segment(
    count: int, seek: int, span: TokenSpan, result: WindowResult, tokenizer: WhisperTokenizer
) -> Segment:
    offset = seek / FRAMES_PER_SECOND
    return Segment(
        id=count,
        seek=seek,
        start=offset + span.start,
        end=offset + span.end,
        text=tokenizer.text(span.tokens),
        tokens=span.tokens,
        temperature=result.temperature,
        avg_logprob=result.avg_logprob,
        compression_ratio=result.compression_ratio,
        no_speech_prob=result.no_speech_prob,
    )


def _without_empty_text(segment: Segment) -> Segment:
    """Without text where it takes no time or says nothing."""
    if segment.start != segment.end and segment.text.strip():
        return segment
    return replace(segment, text="", tokens=(), words=())
