"""Decoding of one window with Whisper's logit filters and temperature fallback.

After openai-whisper's decoding.py (the logit filters) and decode_with_fallback in its
transcribe.py.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn.functional import pad

from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.fallback import Fallback, WindowResult, compression_ratio
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Retract, TextDelta
from pipelines.asr.timestamps import TIME_PRECISION, WhisperTimestamps, split_at_timestamps
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.decoding_choices import Alternative
from pipelines.engine import (
    BadWords,
    Drafting,
    EncodedSource,
    Engine,
    ForcedPhrases,
    ForcedPrefix,
    GenerationOptions,
    LogitFilter,
    NoRepeatNgram,
    Pending,
    RepetitionPenalty,
    Request,
    Result,
    SuppressAtBegin,
    SuppressTokens,
    events_of,
)
from pipelines.text import StreamingDetokenizer

# A segment of a chunk that is this long, and has fewer tokens a second than people say, may be a
# sentence that was said several times and written once. That happens where the chunk is encoded
# without the rest of the window.
_SPARSE_S = 4.0
_SPARSE_TOKENS_PER_S = 1.8
_ABOUT = 0.1  # mean log-probabilities that differ by less are about equal


@dataclass(frozen=True)
class WindowSound:
    """What is to be decoded: an encoded window, and how much of it is sound.

    Attributes:
        encoded: The encoded window.
        frames: Its first frames (10 ms) are sound; the rest is padding.
        size: Frames of the model's window.
        chunk: The window [mels, frames or more] of a chunk, whose sound is known to be speech up
            to its end: timestamps after that are not allowed. None of a recording.
    """

    encoded: EncodedSource
    frames: int
    size: int
    chunk: Tensor | None = None


@dataclass(frozen=True)
class LiveWindowResult:
    """The result of `WindowDecoder.redecode`.

    Attributes:
        window: The decoded window.
        times: For each token, the position of its attention maximum in seconds from the start of
            the window; non-decreasing.
        accepted: Number of draft tokens that were accepted.
        probabilities: Of each token; 1 within the forced prefix.
    """

    window: WindowResult
    times: tuple[float, ...]
    accepted: int
    probabilities: tuple[float, ...]

    @classmethod
    def of(
        cls, window: WindowResult, result: Result, attention: Tensor, step_s: float
    ) -> LiveWindowResult:
        """The result with times.

        Args:
            window: The decoded window; its tokens are the first of the result.
            result: The generation, with log-probabilities.
            attention: [heads, tokens, positions that hold sound].
            step_s: Length of a position in seconds.

        Returns:
            The window with the time and the probability of each of its tokens.
        """
        count = len(window.tokens)
        maxima = attention.mean(0).argmax(-1).cummax(0).values if result.tokens else ()
        times = tuple(float(position) * step_s for position in maxima)
        probabilities = tuple(math.exp(value) for value in result.logprobs[:count])
        return cls(window, times[:count], result.accepted, probabilities)


class WindowDecoder:
    """Decodes single windows with one language, task and set of options."""

    def __init__(
        self,
        engine: Engine,
        drafting: Drafting,
        tokenizer: WhisperTokenizer,
        options: TranscribeOptions,
        *,
        sot_sequence: Sequence[int],
        suppressed: Sequence[int],
        max_positions: int,
        last_timestamp: int,
        alignment_heads: Sequence[tuple[int, int]],
    ) -> None:
        self._engine, self._drafting = engine, drafting
        self._tokenizer = tokenizer
        self._options = options
        self.fallback = Fallback(options)
        self._sot_sequence = tuple(sot_sequence)
        self._max_positions = max_positions
        self._max_new_tokens = min(max_positions // 2, options.max_new_tokens or max_positions)
        self._alignment_heads = tuple(alignment_heads)
        hotwords = (options.hotwords or "").strip()
        self._hotwords = tuple(tokenizer.encode(f" {hotwords}") if hotwords else ())
        self._hotwords = self._hotwords[: self.max_prompt]
        self._last_timestamp = last_timestamp
        self._logit_filters = self._build_filters(suppressed)

    def _build_filters(self, suppressed: Sequence[int]) -> tuple[LogitFilter, ...]:
        options = self._options
        logit_filters: list[LogitFilter] = []
        # Of the window's text only, as in faster-whisper: names of the prompt may occur again.
        if options.repetition_penalty != 1:
            logit_filters.append(RepetitionPenalty(options.repetition_penalty, in_prompt=False))
        if options.no_repeat_ngram_size:
            logit_filters.append(NoRepeatNgram(options.no_repeat_ngram_size, in_prompt=False))
        if options.suppress_phrases:
            spellings = (s for text in options.suppress_phrases for s in (text, f" {text}"))
            logit_filters.append(
                BadWords(tuple(tuple(self._tokenizer.encode(s)) for s in spellings))
            )
        if options.suppress_blank:
            logit_filters.append(SuppressAtBegin(self._tokenizer.blank))
        logit_filters.append(SuppressTokens(tuple(suppressed)))
        return tuple(logit_filters)

    def _filters(self, last_index: int | None = None) -> tuple[LogitFilter, ...]:
        """Return the filters of a window.

        Args:
            last_index: No timestamp is higher; None: the model's window is the limit.
        """
        special, options = self._tokenizer.special, self._options
        if options.without_timestamps:
            return (*self._logit_filters, *options.logit_filters)
        max_initial_index = None
        if options.max_initial_timestamp:  # openai-whisper takes 0 s, like None, as no limit
            max_initial_index = round(options.max_initial_timestamp / TIME_PRECISION)
            in_window = self._last_timestamp - special.timestamp_begin
            max_initial_index = min(max_initial_index, in_window)
        timestamps = WhisperTimestamps(
            begin=special.timestamp_begin,
            eot=special.eot,
            no_timestamps=special.no_timestamps,
            max_initial_index=max_initial_index,
            last_index=last_index,
        )
        return (*self._logit_filters, timestamps, *options.logit_filters)

    def _last_index(self, sound: WindowSound) -> int | None:
        """Return the timestamp at the end of a chunk; None where openai-whisper's rules hold."""
        if sound.chunk is None or self._options.openai_rules:
            return None
        return math.ceil(sound.frames / FRAMES_PER_SECOND / TIME_PRECISION)

    @property
    def max_prompt(self) -> int:
        """Tokens of previous text that a prompt can have."""
        return self._max_positions // 2 - 1

    @property
    def max_previous(self) -> int:
        """Tokens of previous text that a prompt can have beside the hotwords."""
        return self.max_prompt - len(self._hotwords)

    def given_text(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens that the text of a window begins with, its first timestamp included."""
        begin = tuple(prefix[: self.max_prompt])
        if begin and not self._options.without_timestamps:
            begin = (self._tokenizer.special.timestamp_begin, *begin)
        return begin

    def prompt(self, previous: Sequence[int], prefix: Sequence[int] = ()) -> tuple[int, ...]:
        """The decoder's prompt: hotwords, the last of the previous tokens that fit, the SOT
        sequence, and the beginning of the text.

        Args:
            previous: Tokens of the text before the window.
            prefix: Tokens that the text begins with; hotwords are left out then, as in
                faster-whisper.
        """
        special = self._tokenizer.special
        hotwords = () if prefix else self._hotwords
        begin = self.given_text(prefix)
        # Unlike in faster-whisper they share the room of a prompt: the text needs the rest.
        room = self.max_prompt - len(prefix) - len(hotwords)
        kept = previous[-room:] if room > 0 else ()
        if special.previous is None or not (kept or hotwords):
            return (*self._sot_sequence, *begin)
        return (special.previous, *hotwords, *kept, *self._sot_sequence, *begin)

    def decode(
        self,
        sound: WindowSound,
        previous: Sequence[int],
        seed: int | None,
        prefix: Sequence[int] = (),
        forced_phrases: tuple[tuple[int, ...], ...] = (),
    ) -> Generator[TextDelta | Retract | Pending, None, WindowResult]:
        """Decode a window with temperature fallback.

        Closing the generator cancels the decoding.

        Args:
            sound: The window.
            previous: Tokens of the text before the window.
            seed: For sampling; None: random.
            prefix: Tokens that the text begins with.
            forced_phrases: Tokens of texts that the result contains, if its length allows.

        Yields:
            Live text, Retract where an attempt with visible text failed, and Pending where the
            engine must compute a step first.

        Returns:
            The first good attempt, or the best of those that failed.
        """
        prompt, given = self.prompt(previous, prefix), self.given_text(prefix)
        attempts: list[WindowResult] = []
        for temperature in self._options.temperatures:
            if attempts and self.is_visible(attempts[-1]):
                yield Retract()
            result = yield from self._attempt(
                sound, prompt, given, temperature, seed, forced_phrases
            )
            good = self.fallback.is_good(result, sound.frames)
            if good and not (attempts and self.fallback.is_silent(result)):
                return result
            attempts.append(result)
            # That nothing was said is weighed against the attempts before.
            if good or not self.fallback.goes_on(attempts, sound.frames):
                break
        best = self.fallback.best(attempts, sound.frames)
        if best is not result:
            yield from self._show_instead(result, best)
        return best

    def decode_best(
        self,
        sound: WindowSound,
        previous: Sequence[int],
        seed: int | None,
        prefix: Sequence[int] = (),
        forced_phrases: tuple[tuple[int, ...], ...] = (),
    ) -> Generator[TextDelta | Retract | Pending, None, tuple[WindowResult, EncodedSource]]:
        """As `decode`; a chunk with too little text is encoded anew, with the rest of the window.

        Returns:
            The first result, or a later one if it is good and more probable, or longer and about as
            probable; and the encoded window that it is of.
        """
        result = yield from self.decode(sound, previous, seed, prefix, forced_phrases)
        encoded, mel = sound.encoded, sound.chunk
        if mel is None or mel.shape[1] >= sound.size:
            return result, encoded
        # First with what openai-whisper pads with, then with the silence behind the chunk.
        for length, mode in ((sound.frames, "constant"), (mel.shape[1], "replicate")):
            if not self._is_sparse(result, sound.frames):
                break
            whole = pad(mel[:, :length], (0, sound.size - length), mode=mode)
            source = self._drafting.source(whole, self._options.priority)
            yield Pending(source)
            yield Retract()
            padded = replace(sound, encoded=source.encoded)
            again = yield from self.decode(padded, previous, seed, prefix, forced_phrases)
            more_probable = again.avg_logprob - result.avg_logprob
            least = -_ABOUT if again.characters > result.characters else 0.0
            if self.fallback.is_good(again, sound.frames) and more_probable > least:
                result, encoded = again, source.encoded
            else:
                yield from self._show_instead(again, result)
        return result, encoded

    def _is_sparse(self, result: WindowResult, frames: int) -> bool:
        """Return whether a segment is much longer than its text takes to say."""
        special = self._tokenizer.special
        spans, _ = split_at_timestamps(result.tokens, special.timestamp_begin, frames)
        for span in spans:
            seconds = span.end - span.start
            count = sum(token < special.eot for token in span.tokens)
            if seconds >= _SPARSE_S and 0 < count < _SPARSE_TOKENS_PER_S * seconds:
                return True
        return False

    def _show_instead(
        self, shown: WindowResult, kept: WindowResult
    ) -> Generator[TextDelta | Retract, None, None]:
        """Replace the live text of a result by that of the one that is kept."""
        if self.is_visible(shown):
            yield Retract()
        if self.is_visible(kept):
            yield TextDelta(self._tokenizer.text(kept.tokens))

    def redecode(
        self,
        encoded: EncodedSource,
        previous: Sequence[int],
        prefix: Sequence[int],
        draft: Sequence[int],
        max_tokens: int,
        audio_s: float,
        *,
        priority: int = 0,
    ) -> LiveWindowResult:
        """Decode a live buffer again, greedily.

        Args:
            encoded: The encoded window.
            previous: Tokens of the text before the window.
            prefix: Tokens that the result is forced to begin with.
            draft: The previous result, which is verified in one pass. It changes the computing
                time, not the result.
            max_tokens: At most this many new tokens after `prefix`, and at most half the
                decoder's positions in all.
            audio_s: Length of the audio in the window in seconds. No token's time is later.
            priority: Of the request, on a shared engine: a lower number goes first.
        """
        prompt, special = self.prompt(previous), self._tokenizer.special
        options = GenerationOptions(
            max_new_tokens=min(self._max_positions // 2, max_tokens + len(prefix)),
            eos_ids=(special.eot,),
            logit_filters=(*self._filters(), ForcedPrefix(tuple(prefix))),
            logprobs=True,
        )
        request = Request(
            encoded,
            prompt,
            options,
            self._no_speech_probe(prompt),
            priority,
            tuple(draft),
            self._alignment_heads,
            self._drafting.drafter_for(encoded, options),
        )
        result = self._engine.generate([request])[0]
        assert result.attention is not None, "the request names alignment heads"
        # [heads, tokens, positions], only the positions that hold audio
        attention = result.attention[:, :, : max(1, math.ceil(audio_s / TIME_PRECISION))]
        window = self._window_result(result, 0.0)
        return LiveWindowResult.of(window, result, attention, TIME_PRECISION)

    def is_visible(self, result: WindowResult) -> bool:
        """Whether the result holds text, so that live text has been shown for it."""
        return any(token < self._tokenizer.special.eot for token in result.tokens)

    def is_repetitive(self, result: WindowResult) -> bool:
        """Return whether the text's compression ratio is above the threshold."""
        return self.fallback.is_repetitive(result)

    def is_silent(self, result: WindowResult) -> bool:
        """Return whether to skip the window: speech is improbable, and so is its text."""
        return self.fallback.is_silent(result)

    def _attempt(
        self,
        sound: WindowSound,
        prompt: tuple[int, ...],
        given: tuple[int, ...],
        temperature: float,
        seed: int | None,
        forced_phrases: tuple[tuple[int, ...], ...],
    ) -> Generator[TextDelta | Pending, None, WindowResult]:
        """Decode at one temperature."""
        special = self._tokenizer.special
        logit_filters = self._filters(self._last_index(sound))
        if forced_phrases:
            logit_filters = (*logit_filters, ForcedPhrases(forced_phrases, (special.eot,)))
        sequences = (self._options.best_of if temperature else self._options.beam_size) or 1
        options = GenerationOptions(
            max_new_tokens=self._max_new_tokens,
            eos_ids=(special.eot,),
            temperature=temperature,
            best_of=sequences if temperature else 1,
            beam_size=1 if temperature else sequences,
            n_best=min(self._options.n_best, sequences),
            stopping="openai",
            patience=self._options.patience or 1.0,
            length_penalty=self._options.length_penalty,
            seed=seed,
            logit_filters=logit_filters,
            logprobs=True,
        )
        detokenizer = StreamingDetokenizer(self._tokenizer.text, piecewise=True)
        if delta := self._new_text(detokenizer, given):
            yield TextDelta(delta)
        request = Request(
            sound.encoded,
            prompt,
            options,
            self._no_speech_probe(prompt),
            self._options.priority,
            drafter=self._drafting.drafter_for(sound.encoded, options),
        )
        with self._engine.stream(request) as stream:
            for event in events_of(stream):
                if isinstance(event, Pending):
                    yield event
                elif delta := self._new_text(detokenizer, event.tokens):
                    yield TextDelta(delta)
            if delta := detokenizer.finish():
                yield TextDelta(delta)
            return self._window_result(stream.result(), temperature, given)

    def _new_text(self, detokenizer: StreamingDetokenizer, tokens: Iterable[int]) -> str:
        """Return the text that tokens complete; each segment is a text of its own."""
        begin = self._tokenizer.special.timestamp_begin
        return "".join(
            detokenizer.push([token]) if token < begin else detokenizer.finish() for token in tokens
        )

    def _no_speech_probe(self, prompt: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(prompt index, token id) at which the no-speech probability is read."""
        special = self._tokenizer.special
        if special.no_speech is None:
            return ()
        return ((list(prompt).index(special.sot), special.no_speech),)

    def _window_result(
        self, result: Result, temperature: float, given: tuple[int, ...] = ()
    ) -> WindowResult:
        several = result.hypotheses if self._options.n_best > 1 else ()
        ended = bool(result.tokens) and result.tokens[-1] == self._tokenizer.special.eot
        tokens = result.tokens[:-1] if ended else result.tokens
        text = self._tokenizer.decode((*given, *tokens)).strip()
        return WindowResult(
            tokens=(*given, *tokens),
            temperature=temperature,
            avg_logprob=sum(result.logprobs) / (len(tokens) + 1),
            compression_ratio=compression_ratio(text),
            no_speech_prob=result.token_probs[0] if result.token_probs else 0.0,
            alternatives=tuple(
                Alternative(
                    self._tokenizer.text((*given, *each.tokens)).strip(),
                    each.score,
                    (*given, *each.tokens),
                )
                for each in several
            ),
            logprobs=(*[0.0] * len(given), *result.logprobs[: len(tokens)]),
            characters=len(text),
            fastest=self._fastest((*given, *tokens)),
            ended=ended,
        )

    def _fastest(self, tokens: Sequence[int]) -> float:
        """Return the characters in a second of the segment that has the most."""
        begin = self._tokenizer.special.timestamp_begin
        window = (self._last_timestamp - begin) * TIME_PRECISION
        spans, _ = split_at_timestamps(tokens, begin, round(window * FRAMES_PER_SECOND))
        return max(
            len(self._tokenizer.text(span.tokens)) / max(span.end - span.start, TIME_PRECISION)
            for span in spans
        )
