"""Long recordings, one window after the other; after openai-whisper's transcribe.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor
from torch.nn.functional import pad

from pipelines.asr.audio.features import FRAMES_PER_SECOND, WindowFeatures
from pipelines.asr.fallback import WindowResult
from pipelines.asr.hallucinations import WindowTimes, last_word_end, skip_hallucinations
from pipelines.asr.results import (
    Checkpoint,
    Retract,
    Segment,
    SegmentDone,
    TextDelta,
    TokenLogprob,
)
from pipelines.asr.timestamps import TokenSpan, split_at_timestamps
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder, WindowSound
from pipelines.asr.word_timestamps import WordAligner
from pipelines.engine import EncodedSource, Pending, SourceHandle, Task
from pipelines.errors import NumericalError

_MOST_EARLY_ENDS = 3  # of a recording: the text of noise may end early again and again
# A segment of a chunk that is this long, and has fewer tokens a second than people say, may be a
# sentence that was said several times and written once. That happens where the chunk is encoded
# without the rest of the window.
_SPARSE_S = 4.0
_SPARSE_TOKENS_PER_S = 1.8

DecodeEvent: TypeAlias = TextDelta | Retract | SegmentDone | Checkpoint
DecodeTask: TypeAlias = Task[DecodeEvent]

Clip = tuple[int, int | None]
"""First frame (10 ms) of a part of a recording, and the frame after its last; None: its end."""


@dataclass(frozen=True)
class LanguageTools:
    """What decodes the windows of one language.

    Attributes:
        decoder: Decodes a window.
        aligner: Computes the words' times; None without word timestamps. A window that was cut
            off is then followed by one that begins at the end of its last word.
    """

    decoder: WindowDecoder
    aligner: WordAligner | None


@dataclass(frozen=True)
class SequentialPlan:
    """How the windows of a recording follow each other.

    Attributes:
        clips: The parts to decode, in this order.
        initial_prompt: Tokens before the first window.
        carry_initial_prompt: Keep them in the prompt of every window, instead of as long as the
            text after them leaves room.
        prefix: Tokens with which the text of the first window begins.
        forced_phrases: Tokens of texts that the first window contains.
        condition: Give the text so far as the prompt, except after a window that needed a
            temperature above 0.5.
        seed: For sampling; the frame of each window is added. None: random.
        hallucination_silence_s: See `skip_hallucinations`; needs an aligner.
        last_speech: Seconds at which the speech before the first window ended.
        early_end_s: Where the text of a window ends at a timestamp, so many seconds or more before
            the window's audio does, the next window begins there: for audio that is known to be
            speech up to its end. None: the rest counts as silence, as for openai-whisper.
        resume_from: Where an earlier run stopped.
        checkpoints: Yield a Checkpoint after each window.
        token_logprobs: Segments carry the log-probability of each token of their text.
        bounded: No segment begins before the end of the one before it, or ends after the sound of
            its window. False: as openai-whisper.
    """

    clips: tuple[Clip, ...] = ((0, None),)
    initial_prompt: tuple[int, ...] = ()
    carry_initial_prompt: bool = False
    prefix: tuple[int, ...] = ()
    forced_phrases: tuple[tuple[int, ...], ...] = ()
    condition: bool = True
    seed: int | None = 0
    hallucination_silence_s: float | None = None
    last_speech: float = 0.0
    early_end_s: float | None = None
    resume_from: Checkpoint | None = None
    checkpoints: bool = False
    token_logprobs: bool = False
    bounded: bool = True


class _History:
    """The text so far, as far as it is the prompt of the next window."""

    def __init__(self, plan: SequentialPlan, room: int) -> None:
        """
        Args:
            plan: Has the initial prompt, and what an earlier run said.
            room: Tokens of previous text that a prompt can have.
        """
        self._plan, self._room = plan, room
        resumed = plan.resume_from
        self.initial = plan.initial_prompt if resumed is None or resumed.initial_prompt else ()
        self.text = list(resumed.prompt) if resumed is not None else []

    def prompt(self) -> list[int]:
        """The tokens before the next window; the decoder takes the last of them that fit."""
        if not self._plan.carry_initial_prompt:
            return [*self.initial, *self.text]
        room = self._room - len(self._plan.initial_prompt)
        return [*self._plan.initial_prompt, *(self.text[-room:] if room > 0 else ())]

    def forget(self) -> None:
        """Begin the prompt anew."""
        self.initial, self.text = (), []


def decode_windows(
    features: WindowFeatures,
    source_of: Callable[[Tensor], SourceHandle],
    tools_for: Callable[[EncodedSource], LanguageTools],
    tokenizer: WhisperTokenizer,
    plan: SequentialPlan,
) -> DecodeTask:
    """Decode a recording from start to end. Each window begins where the last segment of the
    window before it ended.

    Args:
        features: Log-mel windows of the recording.
        source_of: Makes a window [mels, frames] a source of the model.
        tools_for: The decoder and the aligner for an encoded window, by its language.
        tokenizer: The model's vocabulary.
        plan: How the windows follow each other.

    Raises:
        NumericalError: The model computed NaN or infinity; the message names the window's times.
    """
    resumed = plan.resume_from
    clip_index = 0 if resumed is None else resumed.clip
    seek = plan.clips[clip_index][0] if resumed is None else resumed.seek
    count = 0 if resumed is None else resumed.segments
    last_speech = plan.last_speech if resumed is None else resumed.last_speech
    prefix = plan.prefix if resumed is None else ()
    forced_phrases = plan.forced_phrases if resumed is None else ()
    history: _History | None = None
    given_s = last_speech  # the end of the last segment
    early_ends, is_rest = 0, False  # the window is the rest of a chunk whose text has ended
    while clip_index < len(plan.clips):
        begin, end = plan.clips[clip_index]
        seek = max(seek, begin)
        mel, frames = features.window(seek) if end is None or seek < end else (None, 0)
        if mel is None or frames == 0:
            clip_index += 1
            if clip_index < len(plan.clips):
                seek = plan.clips[clip_index][0]
                given_s = seek / FRAMES_PER_SECOND  # parts may be in any order
            continue
        if end is not None and seek + frames > end:
            frames = end - seek
            mel = mel.clone()
            mel[:, frames:] = 0.0  # as openai-whisper pads
        source = source_of(mel)
        yield Pending(source)
        encoded = source.encoded
        tools = tools_for(encoded)
        decoder, aligner = tools.decoder, tools.aligner
        history = history or _History(plan, decoder.max_previous)
        # The text before it would be said again, if the rest is only noise.
        previous = plan.initial_prompt if is_rest else history.prompt()
        seed = None if plan.seed is None else plan.seed + seek
        sound = WindowSound(encoded, frames, speech_only=plan.early_end_s is not None)
        try:
            result = yield from decoder.decode(sound, previous, seed, prefix, forced_phrases)
            missing = features.size - mel.shape[1]
            # First with what openai-whisper pads with, then with the silence behind the chunk.
            for length in (frames, mel.shape[1]) if sound.speech_only and missing > 0 else ():
                if not _is_sparse(result, frames, tokenizer):
                    break
                mode = "constant" if length == frames else "replicate"
                source = source_of(pad(mel[:, :length], (0, features.size - length), mode=mode))
                yield Pending(source)
                whole = replace(sound, encoded=source.encoded)
                again = yield from decoder.decode_again(
                    result, whole, previous, seed, prefix, forced_phrases
                )
                if again is not result:
                    result, encoded = again, source.encoded
        except NumericalError as error:
            start_s, end_s = seek / FRAMES_PER_SECOND, (seek + frames) / FRAMES_PER_SECOND
            raise NumericalError(
                f"the speech from {start_s:.1f} to {end_s:.1f} s could not be recognized: {error}"
            ) from error
        prefix = forced_phrases = ()
        if decoder.is_silent(result) or (is_rest and decoder.fallback.is_noise(result, frames)):
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
        if plan.token_logprobs:
            segments = [
                replace(segment, token_logprobs=logprobs)
                for segment, logprobs in zip(
                    segments, _token_logprobs(spans, result, tokenizer), strict=True
                )
            ]
        last_two = [t >= tokenizer.special.timestamp_begin for t in result.tokens[-2:]]
        ended = last_two == [False, True]
        is_rest = False
        if plan.early_end_s is not None:
            least = round(plan.early_end_s * FRAMES_PER_SECOND)
            spoken = round(spans[-1].end * FRAMES_PER_SECOND)
            if not ended:
                # After the last pause, in which the model heard nothing more, is little sound.
                is_rest = last_two == [True, True] and frames - advance < least
            elif early_ends < _MOST_EARLY_ENDS and least <= spoken <= frames - least:
                advance, early_ends, is_rest = spoken, early_ends + 1, True
        next_seek = seek + advance
        if aligner is not None:
            segments = aligner.add(segments, encoded, frames, last_speech)
            last_word = last_word_end(segments)
            if not ended and last_word is not None and last_word > seek / FRAMES_PER_SECOND:
                next_seek = round(last_word * FRAMES_PER_SECOND)
            if plan.hallucination_silence_s is not None:
                times = WindowTimes(seek, frames, features.size, features.frames)
                kept, next_seek = skip_hallucinations(
                    segments,
                    times,
                    threshold=plan.hallucination_silence_s,
                    last_speech=last_speech,
                    ended=ended,
                    seek=next_seek,
                )
                if not kept and decoder.is_visible(result):
                    yield Retract()
                if kept is None:
                    seek = next_seek
                    continue
                segments = kept
            last_word = last_word_end(segments)
            last_speech = last_speech if last_word is None else last_word
        for segment in map(_without_empty_text, segments):
            if plan.bounded:
                segment = _bounded(segment, given_s, (seek + frames) / FRAMES_PER_SECOND)
                given_s = segment.end
            history.text.extend(segment.tokens)
            yield SegmentDone(segment)
        count += len(segments)
        if not plan.condition or not decoder.fallback.is_reliable(result):
            history.forget()
        seek = next_seek
        if plan.checkpoints:
            yield Checkpoint(
                segments=count,
                seek=seek,
                clip=clip_index,
                prompt=tuple(history.text[-2 * decoder.max_prompt :]),
                initial_prompt=bool(history.initial),
                last_speech=last_speech,
            )


def _is_sparse(result: WindowResult, frames: int, tokenizer: WhisperTokenizer) -> bool:
    """Return whether a segment is much longer than its text takes to say."""
    spans, _ = split_at_timestamps(result.tokens, tokenizer.special.timestamp_begin, frames)
    for span in spans:
        seconds = span.end - span.start
        count = sum(token < tokenizer.special.eot for token in span.tokens)
        if seconds >= _SPARSE_S and 0 < count < _SPARSE_TOKENS_PER_S * seconds:
            return True
    return False


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
        alternatives=result.alternatives,
    )


def _token_logprobs(
    spans: Iterable[TokenSpan], result: WindowResult, tokenizer: WhisperTokenizer
) -> Iterator[tuple[TokenLogprob, ...]]:
    """The text tokens of each segment with their log-probabilities."""
    logprobs = iter(result.logprobs)  # the spans follow each other from the first token on
    for span in spans:
        yield tuple(
            TokenLogprob(tuple(tokenizer.bytes_of((token,))), logprob)
            for token, logprob in zip(span.tokens, logprobs, strict=False)
            if token < tokenizer.special.eot
        )


def _bounded(segment: Segment, low: float, high: float) -> Segment:
    """Return the segment with its times, and those of its words, within a span and in order."""

    def within(start: float, end: float) -> tuple[float, float]:
        start = min(max(start, low), high)
        return start, min(max(end, start), high)

    start, end = within(segment.start, segment.end)
    words = []
    for word in segment.words:
        word_start, low = within(word.start, word.end)
        words.append(replace(word, start=word_start, end=low))
    return replace(segment, start=start, end=end, words=tuple(words))


def _without_empty_text(segment: Segment) -> Segment:
    """The segment, with text and tokens cleared where it has no duration or only white space."""
    if segment.start != segment.end and segment.text.strip():
        return segment
    return replace(segment, text="", tokens=(), words=(), token_logprobs=())
