"""Long recordings, one window after the other; after openai-whisper's transcribe.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from torch import Tensor

from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.features import FRAMES_PER_SECOND, WindowFeatures
from pipelines.asr.fallback import WindowResult
from pipelines.asr.hallucinations import WindowTimes, last_word_end, skip_hallucinations
from pipelines.asr.options import TranscribeOptions
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

# A chunk ends with speech, but the model may end its text long before: of 1,677 words read by
# people 49 were lost by that. Its timestamps are mostly within 0.5 s of the end.
_EARLY_END = round(1.0 * FRAMES_PER_SECOND)
_MOST_EARLY_ENDS = 3  # of a chunk: the text of noise may end early again and again

DecodeEvent: TypeAlias = TextDelta | Retract | SegmentDone | Checkpoint
DecodeTask: TypeAlias = Task[DecodeEvent]

Clip = tuple[int, int | None]
"""First frame (10 ms) of a part of a recording, and the frame after its last; None: its end."""


class WindowModel(Protocol):
    """A model with timestamps, prompts and languages, whose windows follow each other."""

    tokenizer: WhisperTokenizer

    def window_source(self, window: Tensor, options: TranscribeOptions) -> SourceHandle:
        """Return a log-mel window [mels, frames] as a source of the model."""
        ...

    def top_language(self, encoded: EncodedSource, among: Collection[str]) -> str:
        """Return the code of the most probable language of an encoded window."""
        ...

    def window_decoder(self, language: str, options: TranscribeOptions) -> WindowDecoder:
        """Return the decoder of the windows of one language."""
        ...

    def word_aligner(self, language: str, options: TranscribeOptions) -> WordAligner | None:
        """Return what computes the times of words; None without word timestamps."""
        ...

    def text_ids(self, text: str | tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the tokens of a text that the user gave."""
        ...


class _History:
    """The text so far, as far as it is the prompt of the next window."""

    def __init__(
        self, given: tuple[int, ...], carry: bool, room: int, resumed: Checkpoint | None
    ) -> None:
        """
        Args:
            given: The initial prompt.
            carry: Keep it in the prompt of every window, instead of as long as the text after it
                leaves room.
            room: Tokens of previous text that a prompt can have.
            resumed: What an earlier run said.
        """
        self._carried, self._room = given if carry else None, room
        self.initial = given if resumed is None or resumed.initial_prompt else ()
        self.text = list(resumed.prompt) if resumed is not None else []

    def prompt(self) -> list[int]:
        """Return the tokens before the next window, of which the decoder takes the last."""
        if self._carried is None:
            return [*self.initial, *self.text]
        room = self._room - len(self._carried)
        return [*self._carried, *(self.text[-room:] if room > 0 else ())]

    def forget(self) -> None:
        """Begin the prompt anew."""
        self.initial, self.text = (), []


def decode_windows(
    model: WindowModel,
    features: WindowFeatures,
    language: str,
    options: TranscribeOptions,
    *,
    clips: Sequence[Clip] = ((0, None),),
    chunk: Chunk | None = None,
    first_window: SourceHandle | None = None,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = False,
) -> DecodeTask:
    """Decode a recording, or a chunk of it, from start to end. Each window begins where the last
    segment of the window before it ended.

    A chunk is known to be speech up to its end: where the text of a window ends long before that,
    the next window begins there. In a recording the rest counts as silence, as for openai-whisper.

    Args:
        model: The model.
        features: Log-mel windows of the recording or the chunk.
        language: Code; with `options.multilingual` each window has its own.
        options: How to decode.
        clips: The parts of the recording to decode, in this order.
        chunk: What the features are of; None: a recording.
        first_window: The source of the first window, if it was read before.
        resume_from: Where an earlier run stopped.
        checkpoints: Yield a Checkpoint after each window.

    Raises:
        NumericalError: The model computed NaN or infinity; the message names the window's times.
    """
    tokenizer, special = model.tokenizer, model.tokenizer.special
    initial_prompt = model.text_ids(options.initial_prompt)
    clip_index, count, last_speech = 0, 0, 0.0
    seek = clips[0][0]
    prefix: tuple[int, ...] = ()
    forced_phrases: tuple[tuple[int, ...], ...] = ()
    if chunk is not None:
        clips, seek, last_speech = [(chunk.start_frame, None)], 0, chunk.last_speech_s
    if resume_from is not None:
        clip_index, seek = resume_from.clip, resume_from.seek
        count, last_speech = resume_from.segments, resume_from.last_speech
    elif chunk is None or chunk.number == 1:  # these are for the recording's first window
        prefix = model.text_ids(options.prefix)
        forced_phrases = tuple(map(model.text_ids, options.forced_phrases))
    by_language: dict[str, tuple[WindowDecoder, WordAligner | None]] = {}
    history: _History | None = None
    given_s = last_speech  # the end of the last segment
    early_ends, is_rest = 0, False  # the window is the rest of a chunk whose text has ended
    while clip_index < len(clips):
        begin, end = clips[clip_index]
        seek = max(seek, begin)
        mel, frames = features.window(seek) if end is None or seek < end else (None, 0)
        if mel is None or frames == 0:
            clip_index += 1
            if clip_index < len(clips):
                seek = clips[clip_index][0]
                given_s = seek / FRAMES_PER_SECOND  # parts may be in any order
            continue
        if end is not None and seek + frames > end:
            frames = end - seek
            mel = mel.clone()
            mel[:, frames:] = 0.0  # as openai-whisper pads
        source = first_window or model.window_source(mel, options)
        first_window = None
        yield Pending(source)
        encoded = source.encoded
        spoken = language
        if options.multilingual:
            spoken = model.top_language(encoded, options.languages)
        if spoken not in by_language:
            by_language[spoken] = (
                model.window_decoder(spoken, options),
                model.word_aligner(spoken, options),
            )
        decoder, aligner = by_language[spoken]
        history = history or _History(
            initial_prompt, options.carry_initial_prompt, decoder.max_previous, resume_from
        )
        # The text before it would be said again, if the rest is only noise.
        previous = initial_prompt if is_rest else history.prompt()
        seed = None if options.seed is None else options.seed + seek
        sound = WindowSound(encoded, frames, features.size, None if chunk is None else mel)
        try:
            result, encoded = yield from decoder.decode_best(
                sound, previous, seed, prefix, forced_phrases
            )
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
        spans, advance = split_at_timestamps(result.tokens, special.timestamp_begin, frames)
        segments = [
            _segment(number, seek, span, result, tokenizer)
            for number, span in enumerate(spans, count)
        ]
        if options.token_logprobs:
            segments = [
                replace(segment, token_logprobs=logprobs)
                for segment, logprobs in zip(
                    segments, _token_logprobs(spans, result, tokenizer), strict=True
                )
            ]
        last_two = [t >= special.timestamp_begin for t in result.tokens[-2:]]
        ended = last_two == [False, True]
        is_rest = False
        if chunk is not None:
            said = round(spans[-1].end * FRAMES_PER_SECOND)
            if not ended:
                # After the last pause, in which the model heard nothing more, is little sound.
                is_rest = last_two == [True, True] and frames - advance < _EARLY_END
            elif early_ends < _MOST_EARLY_ENDS and _EARLY_END <= said <= frames - _EARLY_END:
                advance, early_ends, is_rest = said, early_ends + 1, True
        next_seek = seek + advance
        if aligner is not None:
            segments = aligner.add(segments, encoded, frames, last_speech)
            last_word = last_word_end(segments)
            # What was cut off is heard again from the end of the last word.
            if not ended and last_word is not None and last_word > seek / FRAMES_PER_SECOND:
                next_seek = round(last_word * FRAMES_PER_SECOND)
            if options.hallucination_silence_threshold is not None:
                times = WindowTimes(seek, frames, features.size, features.frames)
                kept, next_seek = skip_hallucinations(
                    segments,
                    times,
                    threshold=options.hallucination_silence_threshold,
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
            if not options.openai_rules:
                segment = _bounded(segment, given_s, (seek + frames) / FRAMES_PER_SECOND)
                given_s = segment.end
            history.text.extend(segment.tokens)
            yield SegmentDone(segment)
        count += len(segments)
        # Not after a window that needed a high temperature.
        if not options.condition_on_previous_text or not decoder.fallback.is_reliable(result):
            history.forget()
        seek = next_seek
        if checkpoints:
            yield Checkpoint(
                segments=count,
                seek=seek,
                clip=clip_index,
                prompt=tuple(history.text[-2 * decoder.max_prompt :]),
                initial_prompt=bool(history.initial),
                last_speech=last_speech,
            )


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
