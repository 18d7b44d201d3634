"""Long recordings, one window after the other; after openai-whisper's transcribe.py."""

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
    """Decode a recording from start to end. Each window begins where the last segment of the
    window before it ended.

    Args:
        features: Log-mel windows of the recording.
        decoder: Decodes a window.
        tokenizer: The model's vocabulary.
        initial_prompt: Tokens before the first window, kept in the prompt as long as they fit.
        condition: Give the text so far as the prompt, except after a window that needed a
            temperature above 0.5.
        seed: For sampling; the frame of each window is added. None: random.
        aligner: Computes the words' times. A window that was cut off is then followed by one that
            begins at the end of its last word.
        start: First frame (10 ms).

    Raises:
        NumericalError: The model computed NaN or infinity; the message names the window's times.
    """
    seek, count = start, 0
    history = list(initial_prompt)
    prompt_start = 0  # tokens of the history before this index are not in the prompt any more
    while True:
        mel, frames = features.window(seek)
        if frames == 0:
            return
        encoded = yield EncodeRequest(mel)
        assert encoded is not None, "an EncodeRequest is answered with the encoded window"
        try:
            result = yield from decoder.decode(
                encoded,
                history[prompt_start:],
                None if seed is None else seed + seek,
            )
        except NumericalError as error:
            begin, end = seek / FRAMES_PER_SECOND, (seek + frames) / FRAMES_PER_SECOND
            raise NumericalError(
                f"the speech from {begin:.1f} to {end:.1f} s could not be recognized: {error}"
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
            prompt_start = len(history)
        seek += advance


def _segment(
    number: int, seek: int, span: TokenSpan, result: WindowResult, tokenizer: WhisperTokenizer
) -> Segment:
    offset = seek / FRAMES_PER_SECOND
    return Segment(
        id=number,
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
    """The segment, with text and tokens cleared where it has no duration or only white space."""
    if segment.start != segment.end and segment.text.strip():
        return segment
    return replace(segment, text="", tokens=(), words=())
