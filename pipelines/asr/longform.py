"""Recordings of any length, window after window; after openai-whisper's transcribe.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from pipelines.asr.features import FRAMES_PER_SECOND, WindowFeatures
from pipelines.asr.results import Retract, Segment, SegmentDone, TextDelta
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import TIME_PRECISION, WindowDecoder, WindowResult
from pipelines.engine import Memory

__all__ = ["Span", "cut", "follow"]

_FRAMES_PER_TIMESTAMP = 2


@dataclass(frozen=True)
class Span:
    """Tokens that make a segment. start, end: seconds from the start of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]


def cut(tokens: Sequence[int], timestamp_begin: int, frames: int) -> tuple[list[Span], int]:
    """A window's tokens as segments, and how many frames on the next window begins.

    Two timestamps in a row part segments. What follows the last pair was cut off by the
    window's end: the next window begins there and hears it whole. A single timestamp at the
    very end says that nothing more is spoken, so all `frames` of the window are done.
    """
    stamped = [token >= timestamp_begin for token in tokens]
    ends_single = stamped[-2:] == [False, True]
    cuts = [i for i in range(1, len(tokens)) if stamped[i - 1] and stamped[i]]
    if not cuts:
        end = frames / FRAMES_PER_SECOND
        last = next((t for t in reversed(tokens) if t >= timestamp_begin), timestamp_begin)
        if last != timestamp_begin:
            end = (last - timestamp_begin) * TIME_PRECISION
        return [Span(0.0, end, tuple(tokens))], frames
    if ends_single:
        cuts.append(len(tokens))
    spans = []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        piece = tuple(tokens[start:stop])
        first, last = piece[0] - timestamp_begin, piece[-1] - timestamp_begin
        spans.append(Span(first * TIME_PRECISION, last * TIME_PRECISION, piece))
    if ends_single:
        return spans, frames
    return spans, (tokens[cuts[-1] - 1] - timestamp_begin) * _FRAMES_PER_TIMESTAMP


def follow(
    features: WindowFeatures,
    encode: Callable[[Tensor, int], Memory],
    decoder: WindowDecoder,
    tokenizer: WhisperTokenizer,
    *,
    initial_prompt: Sequence[int],
    condition: bool,
    seed: int | None,
) -> Iterator[TextDelta | Retract | SegmentDone]:
    """Decode a recording from start to end, moving on by what each window's timestamps say.

    encode: (window, its first frame) → memory; called once a window. initial_prompt: tokens put
    before the first window, and kept as long as they fit. condition: let previous text be the
    prompt, unless a window needed a temperature above 0.5.
    """
    seek, count = 0, 0
    history = list(initial_prompt)
    remembered_from = 0  # history before this is not shown to the decoder any more
    while True:
        mel, frames = features.window(seek)
        if frames == 0:
            return
        result = yield from decoder.decode(
            encode(mel, seek),
            history[remembered_from:],
            None if seed is None else seed + seek,
        )
        if decoder.is_silent(result):
            if decoder.is_visible(result):
                yield Retract()
            seek += frames
            continue
        spans, advance = cut(result.tokens, tokenizer.special.timestamp_begin, frames)
        for span in spans:
            segment = _segment(count, seek, span, result, tokenizer)
            history.extend(segment.tokens)
            count += 1
            yield SegmentDone(segment)
        if not condition or result.temperature > 0.5:
            remembered_from = len(history)
        seek += advance


def _segment(
    count: int, seek: int, span: Span, result: WindowResult, tokenizer: WhisperTokenizer
) -> Segment:
    offset = seek / FRAMES_PER_SECOND
    start, end = offset + span.start, offset + span.end
    text = tokenizer.text(span.tokens)
    empty = start == end or not text.strip()
    return Segment(
        id=count,
        seek=seek,
        start=start,
        end=end,
        text="" if empty else text,
        tokens=() if empty else span.tokens,
        temperature=result.temperature,
        avg_logprob=result.avg_logprob,
        compression_ratio=result.compression_ratio,
        no_speech_prob=result.no_speech_prob,
    )
