"""One window: tokens under Whisper's rules, tried again at higher temperatures when they fail.

After openai-whisper's decoding.py (the rules) and decode_with_fallback in its transcribe.py.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pipelines.asr.decode_tasks import StreamNotReady
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Retract, TextDelta
from pipelines.asr.timestamps import TIME_PRECISION, WhisperTimestamps
from pipelines.asr.tokenizer import StreamingDetokenizer, WhisperTokenizer
from pipelines.engine import (
    EncodedSource,
    Engine,
    ForcedPrefix,
    GenerationOptions,
    LogitFilter,
    Priority,
    Request,
    Result,
    SuppressAtBegin,
    SuppressTokens,
)

__all__ = [
    "LiveWindowResult",
    "WindowDecoder",
    "WindowResult",
    "compression_ratio",
]


@dataclass(frozen=True)
class WindowResult:
    """What a window came to. tokens: generated ids, without the end of text.

    avg_logprob: sum over tokens and end of text, over tokens + 1. no_speech_prob: 0 where the
    vocabulary has no such token.
    """

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


@dataclass(frozen=True)
class LiveWindowResult:
    """A live buffer, decoded again. times: seconds from its start at which each token was looked
    for, never falling. accepted: how many tokens of the draft were kept."""

    window: WindowResult
    times: tuple[float, ...]
    accepted: int


def compression_ratio(text: str) -> float:
    """UTF-8 length over its zlib-compressed length: high for text that repeats itself."""
    data = text.encode("utf-8")
    return len(data) / len(zlib.compress(data))


class WindowDecoder:
    """Decodes windows of one recording: the same language, task and options throughout."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: WhisperTokenizer,
        options: TranscribeOptions,
        *,
        start: Sequence[int],
        suppress: Sequence[int],
        positions: int,
        last_timestamp: int,
        alignment_heads: Sequence[tuple[int, int]],
    ) -> None:
        """start: start of transcript, with language and task where the model has them.
        suppress: ids never chosen. positions: the decoder's, half of them for the prompt.
        last_timestamp: id of the one at the end of the window. alignment_heads: (decoder layer,
        head) pairs whose attention follows the speech.
        """
        self._engine = engine
        self._tokenizer = tokenizer
        self._options = options
        self._start = tuple(start)
        self._positions = positions
        self._alignment_heads = tuple(alignment_heads)
        self._logit_filters = self._grammar(suppress, last_timestamp)

    def _grammar(self, suppress: Sequence[int], last_timestamp: int) -> tuple[LogitFilter, ...]:
        special, options = self._tokenizer.special, self._options
        logit_filters: list[LogitFilter] = [
            SuppressAtBegin(self._tokenizer.blank)
        ] * options.suppress_blank
        logit_filters.append(SuppressTokens(tuple(suppress)))
        if options.without_timestamps:
            return tuple(logit_filters)
        latest = None
        if options.max_initial_timestamp:  # openai-whisper takes 0 s, like None, for no limit
            latest = round(options.max_initial_timestamp / TIME_PRECISION)
            latest = min(latest, last_timestamp - special.timestamp_begin)
        logit_filters.append(
            WhisperTimestamps(
                begin=special.timestamp_begin,
                eot=special.eot,
                no_timestamps=special.no_timestamps,
                max_initial_index=latest,
            )
        )
        return tuple(logit_filters)

    def prompt(self, previous: Sequence[int]) -> tuple[int, ...]:
        """The decoder's prompt: as much of the previous tokens as fits, then the start."""
        if not previous or self._tokenizer.special.previous is None:
            return self._start
        kept = previous[-(self._positions // 2 - 1) :]
        return (self._tokenizer.special.previous, *kept, *self._start)

    def decode(
        self, encoded: EncodedSource, previous: Sequence[int], seed: int | None
    ) -> Generator[TextDelta | Retract | StreamNotReady, EncodedSource | None, WindowResult]:
        """Decode a window, with live text as it comes; returns the result of the last attempt.

        previous: tokens before this window. Closing the generator cancels the decoding.
        """
        prompt = self.prompt(previous)
        temperatures = self._options.temperatures
        for attempt, temperature in enumerate(temperatures, start=1):
            result = yield from self._attempt(encoded, prompt, temperature, seed)
            if attempt == len(temperatures) or not self._failed(result):
                break
            if self.is_visible(result):
                yield Retract()
        return result

    def redecode(
        self,
        encoded: EncodedSource,
        previous: Sequence[int],
        fixed: Sequence[int],
        draft: Sequence[int],
        longest: int,
        heard_s: float,
    ) -> LiveWindowResult:
        """Decode a live buffer once more, greedily, ahead of all other work.

        fixed: tokens that the result begins with, whatever the model would say now.
        draft: the last result, verified in one pass; it changes how long this takes, not what
        comes out. longest: at most so many tokens, besides what half the positions allow.
        heard_s: how much of the window is audio: no word is looked for behind it.
        """
        prompt, special = self.prompt(previous), self._tokenizer.special
        options = GenerationOptions(
            max_new_tokens=min(self._positions // 2, longest + len(fixed)),
            eos_ids=(special.eot,),
            logit_filters=(*self._logit_filters, ForcedPrefix(tuple(fixed))),
            logprobs=True,
        )
        request = Request(
            encoded,
            prompt,
            options,
            self._no_speech_probe(prompt),
            Priority.LIVE_RECOGNITION,
            tuple(draft),
            self._alignment_heads,
        )
        result = self._engine.generate([request])[0]
        assert result.attention is not None, "the request asks for attention"
        seen = result.attention[:, :, : max(1, math.ceil(heard_s / TIME_PRECISION))]
        frames = seen.mean(0).argmax(-1).cummax(0).values if result.tokens else ()
        window = self._assessed(result, 0.0)
        times = tuple(float(frame) * TIME_PRECISION for frame in frames)
        return LiveWindowResult(window, times[: len(window.tokens)], result.accepted)

    def is_visible(self, result: WindowResult) -> bool:
        """Whether live text has been shown for it."""
        return any(token < self._tokenizer.special.eot for token in result.tokens)

    def is_silent(self, result: WindowResult) -> bool:
        """Whether to skip the window: it is likely silent, and its text unlikely."""
        options = self._options
        if options.no_speech_threshold is None:
            return False
        likely = (
            options.logprob_threshold is not None and result.avg_logprob > options.logprob_threshold
        )
        return result.no_speech_prob > options.no_speech_threshold and not likely

    def is_repetitive(self, result: WindowResult) -> bool:
        """Whether the text shrinks so well that it must be a loop."""
        threshold = self._options.compression_ratio_threshold
        return threshold is not None and result.compression_ratio > threshold

    def _failed(self, result: WindowResult) -> bool:
        """Whether to try again: the text repeats itself or is unlikely, and it is not silence."""
        options = self._options
        unlikely = (
            options.logprob_threshold is not None and result.avg_logprob < options.logprob_threshold
        )
        silent = (
            options.no_speech_threshold is not None
            and result.no_speech_prob > options.no_speech_threshold
        )
        return (self.is_repetitive(result) or unlikely) and not (silent and unlikely)

    def _attempt(
        self, encoded: EncodedSource, prompt: tuple[int, ...], temperature: float, seed: int | None
    ) -> Generator[TextDelta | StreamNotReady, EncodedSource | None, WindowResult]:
        special = self._tokenizer.special
        options = GenerationOptions(
            max_new_tokens=self._positions // 2,
            eos_ids=(special.eot,),
            temperature=temperature,
            best_of=(self._options.best_of or 1) if temperature else 1,
            beam_size=1 if temperature else self._options.beam_size or 1,
            stopping="openai",
            patience=self._options.patience or 1.0,
            length_penalty=self._options.length_penalty,
            seed=seed,
            logit_filters=self._logit_filters,
            logprobs=True,
        )
        text = StreamingDetokenizer(self._tokenizer)
        request = Request(encoded, prompt, options, self._no_speech_probe(prompt))
        with self._engine.stream(request) as stream:
            while True:
                if not stream.ready:
                    yield StreamNotReady(stream)
                event = next(stream, None)
                if event is None:
                    break
                if delta := text.feed(event.tokens):
                    yield TextDelta(delta)
            if delta := text.finish():
                yield TextDelta(delta)
            return self._assessed(stream.result(), temperature)

    def _no_speech_probe(self, prompt: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Where the probability of no speech is read."""
        special = self._tokenizer.special
        if special.no_speech is None:
            return ()
        return ((list(prompt).index(special.sot), special.no_speech),)

    def _assessed(self, result: Result, temperature: float) -> WindowResult:
        ended = bool(result.tokens) and result.tokens[-1] == self._tokenizer.special.eot
        tokens = result.tokens[:-1] if ended else result.tokens
        return WindowResult(
            tokens=tokens,
            temperature=temperature,
            avg_logprob=sum(result.logprobs) / (len(tokens) + 1),
            compression_ratio=compression_ratio(self._tokenizer.decode(tokens).strip()),
            no_speech_prob=result.token_probs[0] if result.token_probs else 0.0,
        )
