"""Live recognition: blocks of audio in, events out; text is committed as soon as it is stable.

No threads and no clock: a recording can be fed at any speed. Every update decodes the open buffer
again, with the previous hypothesis as the draft, so that unchanged tokens are verified in one
pass. A policy decides how many words become final: agreed_word_count or aligned_word_count.
Committed text never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.vad import LongPause, SpeechEnd, SpeechStart, VoiceActivity, VoiceEvent
from pipelines.asr.live.buffer import WORD_TRAIL_S, LiveBuffer
from pipelines.asr.live.correction import SpokenPart, corrected_text
from pipelines.asr.live.events import (
    CommittedText,
    CorrectedText,
    CorrectionDue,
    LiveEvent,
    OtherLanguage,
    PartialText,
    SpeechEnded,
    SpeechStarted,
    UpdateDecoded,
)
from pipelines.asr.live.hypothesis import (
    HypothesisWord,
    agreed_word_count,
    aligned_word_count,
    hypothesis_words,
    segment_starts,
)
from pipelines.asr.live.options import LiveOptions
from pipelines.asr.live.spoken_language import SpokenLanguage
from pipelines.asr.plain_decoder import PlainDecoder
from pipelines.asr.results import Word
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.window import WindowDecoder
from pipelines.engine import EncodedSource
from pipelines.languages import system_language

# Seconds kept free at the end of the window, so that a word at the buffer's end is complete.
_WINDOW_RESERVE_S = 1.0
# Speech behind the last segment that is decoded on its own (s): timestamps are not more exact.
_LEAST_REST_S = 0.6
# At the end of running text the model puts such a mark where the sound ends, not the sentence.
_SENTENCE_MARKS = ".?!…。？！-–— "
# Of these, the ones that a pause alone makes the model write.
_PAUSE_MARKS = frozenset(".…-–—")
_MAX_SENTENCE = 100  # tokens of the last sentence that are given as context
# Their mean probability from which they are: errors before a pause would cause more behind it.
_CLEAR = 0.8
_WORD_LEAD_S = 0.2  # a word is taken to begin so much before its aligned time


class LiveTranscriber:
    """One live session. Many sessions may share one transcriber."""

    def __init__(
        self,
        transcriber: Transcriber,
        options: LiveOptions | None = None,
        vad: VoiceActivity | None = None,
    ) -> None:
        """
        Args:
            transcriber: the model.
            options: None: the defaults.
            vad: replaces voice activity detection by `options.vad`.

        Raises:
            UnsupportedTask: the model lacks the language or the task, or is run by transformers.
        """
        self._options = options or LiveOptions()
        self._transcriber = transcriber
        self._tokenizer = transcriber.tokenizer  # which models without live captions lack
        transcriber.check(self._options.transcribe)
        self._vad = vad or VoiceActivity(self._options.vad)
        self._window_s = transcriber.window_s
        self._min_chunk = round(self._options.min_chunk_s * SAMPLE_RATE)  # samples
        # A model that was trained on the full 30 s needs more silence after short audio.
        self._silence_s, self._least_s = (3, 5) if self._window_s >= 30 else (1, 0)
        prompt = self._options.transcribe.initial_prompt
        if isinstance(prompt, tuple):
            self._prompt = list(prompt)
        else:
            self._prompt = self._tokenizer.encode(" " + prompt.strip()) if prompt else []
        self._context: list[int] = []  # last committed text tokens
        known = transcriber.capabilities.languages
        self._spoken = SpokenLanguage(
            self._options.transcribe.language or (known[0] if len(known) == 1 else None),
            self._options.transcribe.languages,
            [code for code in ("en", system_language()) if code in known],
        )
        self._utterance_start = 0  # position in the stream, pre-roll included
        self._decoders: dict[str, WindowDecoder | PlainDecoder] = {}  # by language
        self._buffer: LiveBuffer | None = None  # None in pauses
        # Where the audio of the utterance ends, during a pause after which it may go on.
        self._paused_at: int | None = None
        self._mark: Word | None = None  # it would end the sentence before the pause
        self._sentence: list[int] = []  # committed text tokens of the utterance's last sentence
        self._sentence_language: str | None = None
        self._clarity: list[float] = []  # probabilities of what the buffer has committed
        self._partial_text = ""  # of the latest PartialText
        self._part = SpokenPart() if self._options.correct else None
        self._committed_until_s = 0.0
        # Samples fed before the latest finish(), where VAD positions restart, and since then.
        self._stream_offset = self._fed_samples = 0

    @property
    def level(self) -> float:
        """RMS level of the latest audio in dB relative to full scale."""
        return self._vad.level

    @property
    def corrects(self) -> bool:
        """Whether finished utterances are kept to be corrected."""
        return self._options.correct

    @property
    def language(self) -> str | None:
        """The code of the given language, or of the one detected in the latest utterance."""
        return self._spoken.language

    def feed(self, samples: Samples) -> list[LiveEvent]:
        """Add audio and return the events that it causes.

        The position of updates depends on the audio only, not on the size of the blocks. The
        exception is a block of min_chunk_s or more, in which several updates may be due: only the
        last one is decoded. A caller that falls behind catches up by feeding all audio that has
        arrived as one block.

        Args:
            samples: mono float32 [n] at 16 kHz, n ≥ 0.

        Raises:
            AudioError: `samples` is not an array of samples.
        """
        self._fed_samples += len(samples)
        catching_up = len(samples) >= self._min_chunk
        return self._process(self._vad.feed(samples), catching_up) + self._update()

    def finish(self) -> list[LiveEvent]:
        """End the stream and commit all text. Audio fed later continues on the same clock."""
        events = self._process(self._vad.finish(), catching_up=True) + self._end_utterance()
        self._stream_offset, self._fed_samples = self._stream_offset + self._fed_samples, 0
        return events

    def skip(self, samples: int) -> list[LiveEvent]:
        """End the stream as `finish`; audio fed later follows after a gap of `samples`."""
        events = self.finish()
        self._stream_offset += samples
        return events

    def correct(
        self, due: CorrectionDue, is_wanted: Callable[[], bool] = lambda: True
    ) -> CorrectedText | None:
        """Decode finished speech once more, as a recording is. From any thread.

        Args:
            due: from `feed` or `finish`, with `LiveOptions.correct`.
            is_wanted: asked while it is decoded; when it says no, decoding ends.

        Returns:
            The text that replaces what was committed; None if that is the same, if the model is not
            certain now, hears nothing or far more, or if it is not wanted any more.
        """
        return corrected_text(self._transcriber, due, self._options.transcribe, is_wanted)

    def _process(self, vad_events: Sequence[VoiceEvent], catching_up: bool) -> list[LiveEvent]:
        """Follow voice activity: open, extend and finalise the buffer."""
        events: list[LiveEvent] = []
        for event in vad_events:
            if isinstance(event, SpeechStart):
                start = self._stream_offset + event.sample
                self._utterance_start = start
                self._spoken.begin()
                clear = self._clarity and sum(self._clarity) / len(self._clarity) >= _CLEAR
                context = tuple(self._sentence[-_MAX_SENTENCE:]) if clear else ()
                self._buffer, self._clarity = LiveBuffer(start, context=context), []
                if self._paused_at is None:
                    events.append(SpeechStarted(start / SAMPLE_RATE))
                self._paused_at = None
            elif isinstance(event, LongPause):
                events += self._end_utterance()
            elif isinstance(event, SpeechEnd):
                assert self._buffer is not None, "speech starts before it ends"
                events += self._finalise(self._buffer, self._stream_offset + event.speech_end)
                self._buffer = None
                self._paused_at = self._stream_offset + event.sample
                if not self._vad.tells_long_pauses:
                    events += self._end_utterance()
            else:
                assert self._buffer is not None, "speech starts before it continues"
                if self._part is not None:
                    self._part.add_sound(self._stream_offset + event.start, event.samples)
                events += self._extend(self._buffer, event.samples)
                events += [] if catching_up else self._update()
        return events

    def _end_utterance(self) -> list[LiveEvent]:
        """End the utterance whose last words a pause has followed, if there is one."""
        if self._paused_at is None:
            return []
        events = [*self._commit_mark(), *self._due(self._paused_at)]
        events.append(SpeechEnded(self._paused_at / SAMPLE_RATE))
        self._paused_at = None
        self._sentence = []
        return events

    def _due(self, end: int, tokens: int = 0) -> list[LiveEvent]:
        """What can be corrected up to a position in the stream; see `SpokenPart.cut`."""
        due = None if self._part is None else self._part.cut(end, tokens)
        return [] if due is None else [due]

    def _extend(self, buffer: LiveBuffer, samples: Samples) -> list[LiveEvent]:
        """Add audio. Speech that fills the window without a pause is cut at its quietest point."""
        events: list[LiveEvent] = []
        max_samples = int((self._window_s - _WINDOW_RESERVE_S) * SAMPLE_RATE)
        buffer.append(samples, self._min_chunk)
        while len(buffer.samples) > max_samples:
            rest = buffer.split(max_samples)
            events += self._finalise(buffer, buffer.offset + len(buffer.samples))
            events += self._due(rest.offset)
            self._buffer = buffer = rest
            buffer.append(np.zeros(0, np.float32), self._min_chunk)
        return events

    def _finalise(self, buffer: LiveBuffer, speech_end: int) -> list[LiveEvent]:
        """Decode the buffer for the last time and commit all of it.

        Where the model ends early, the rest is decoded as a window of its own.
        """
        events = self._decode_rest(buffer, speech_end)
        while self._ends_early(buffer, speech_end):
            count = len(hypothesis_words(buffer.hypothesis, self._tokenizer))
            events += self._commit(buffer, count, with_mark=True)
            if not self._pop_segments(buffer):
                break
            buffer.decoded_samples = 0
            events += self._decode_rest(buffer, speech_end)
        words = hypothesis_words(buffer.hypothesis, self._tokenizer)
        count = len(words)
        if buffer.rejected:
            # The hypothesis is that of an earlier update, which may have covered audio behind the
            # cut. Words there are recognized again in the next buffer.
            count = aligned_word_count(words, buffer.token_times, buffer.decoded_s)
        return events + self._commit(buffer, count, final=True)

    def _decode_rest(self, buffer: LiveBuffer, speech_end: int) -> list[LiveEvent]:
        """Decode all of the buffer, unless the latest update did."""
        # Also after split() cut audio off, and where the language was not known before.
        stale = buffer.waits or buffer.decoded_samples != len(buffer.samples)
        return self._decode(buffer, len(buffer.samples), speech_end, ended=True) if stale else []

    def _update(self) -> list[LiveEvent]:
        """Decode and commit by the policy, if an update is due."""
        buffer = self._buffer
        if buffer is None or buffer.due_samples is None:
            return []
        previous = hypothesis_words(buffer.hypothesis, self._tokenizer)
        speech_end = self._stream_offset + self._vad.speech_end
        events = self._decode(buffer, buffer.due_samples, speech_end)
        current = hypothesis_words(buffer.hypothesis, self._tokenizer)
        if buffer.rejected or not self._spoken.is_sure:
            count = 0
        elif self._options.policy == "agreement":
            count = agreed_word_count(previous, current)
        else:
            limit_s = buffer.decoded_s - self._options.attention_margin_s
            # The last word may be the beginning of a longer one (so does SimulStreaming).
            whole = max(0, len(current) - 1)
            count = min(whole, aligned_word_count(current, buffer.token_times, limit_s))
        ends_early = self._ends_early(buffer, speech_end)
        for words in [*self._segment_ends(buffer, current[:count]), count]:
            events += self._commit(buffer, words, with_mark=ends_early)
        return events + self._trim(buffer, ends_early)

    def _segment_ends(self, buffer: LiveBuffer, words: Sequence[HypothesisWord]) -> list[int]:
        """After how many of the words a segment ends that will be corrected on its own."""
        begin = self._tokenizer.timestamp_begin
        if self._part is None or begin is None:
            return []
        ends = (
            sum(word.stop <= start for word in words)
            for start in segment_starts(buffer.hypothesis, begin)
        )
        old = len(buffer.committed)
        return [end for end in ends if 0 < end < len(words) and words[end - 1].stop > old]

    def _decode(
        self, buffer: LiveBuffer, samples: int, speech_end: int, *, ended: bool = False
    ) -> list[LiveEvent]:
        """Decode the buffer's first `samples` samples, with its committed tokens as the prefix.

        Nothing is decoded while the language is not known, unless the buffer has `ended`.

        Args:
            buffer: its hypothesis is replaced.
            samples: how many of the buffer's samples are decoded.
            speech_end: where its speech ends so far, as a position in the stream.
            ended: no more audio follows in this buffer.
        """
        buffer.decoded_samples, buffer.due_samples = samples, None
        speech_s = self._speech_s(min(speech_end, buffer.offset + samples))
        buffer.waits = not ended and self._spoken.waits(speech_s)
        if buffer.waits:
            return []
        encoded, before = self._encode(buffer.samples[:samples]), self._spoken.language
        language = self._spoken.hear(
            speech_s, lambda: self._transcriber.language_probs(encoded), ended=ended
        )
        if language is None:
            buffer.waits = True
            return []
        if language != before and not buffer.committed:
            buffer.set_hypothesis((), (), ())
        decoder = self._decoder(language)
        draft = tuple(buffer.hypothesis if self._options.drafts else ())
        result = decoder.redecode(
            encoded,
            [*self._prompt, *(self._context or self._context_of(buffer, language))],
            buffer.committed,
            draft,
            _max_tokens(buffer.decoded_s),
            buffer.decoded_s,
            priority=self._options.priority,
        )
        # A repetition loop carries no text: the hypothesis before it is kept.
        buffer.rejected = decoder.is_repetitive(result.window)
        if decoder.is_silent(result.window):
            count = len(buffer.committed)
            buffer.set_hypothesis(
                buffer.committed, buffer.token_times[:count], buffer.token_probabilities[:count]
            )
        elif not buffer.rejected:
            buffer.set_hypothesis(result.window.tokens, result.times, result.probabilities)
        update = UpdateDecoded(
            buffer.decoded_s, len(result.window.tokens), len(draft), result.accepted
        )
        doubt = self._spoken.take_doubt()
        if doubt is None:
            return [update]
        return [update, OtherLanguage(doubt, self._spoken.expected, self._options.transcribe.task)]

    def _context_of(self, buffer: LiveBuffer, language: str) -> Sequence[int]:
        """The sentence that the buffer may continue, if it is in the same language."""
        return buffer.context if language == self._sentence_language else ()

    def _speech_s(self, end: int) -> float:
        """Return the seconds of the utterance's speech, which ends at a position in the stream."""
        pre_roll = self._vad.options.samples("speech_pad_ms")
        return max(0.0, (end - self._utterance_start - pre_roll) / SAMPLE_RATE)

    def _encode(self, samples: Samples) -> EncodedSource:
        seconds = self._window_s
        if self._options.follow_window:
            # In steps of one second: each encoder length is prepared once.
            needed = math.ceil(len(samples) / SAMPLE_RATE) + self._silence_s
            seconds = min(seconds, max(needed, self._least_s))
        return self._transcriber.encode([self._transcriber.live_source(samples, seconds)])[0]

    def _decoder(self, language: str) -> WindowDecoder | PlainDecoder:
        if language not in self._decoders:
            self._decoders[language] = self._transcriber.window_decoder(
                language, self._options.transcribe
            )
        return self._decoders[language]

    def _commit(
        self, buffer: LiveBuffer, count: int, *, final: bool = False, with_mark: bool = False
    ) -> list[LiveEvent]:
        """Commit the first `count` words of the hypothesis.

        A mark that ends a sentence at the end of the hypothesis is kept open, because the sentence
        may go on.

        Args:
            buffer: its `committed` grows.
            count: words; fewer than are committed already change nothing.
            final: the buffer is complete: the rest of the hypothesis is discarded.
            with_mark: commit the mark at the end, too.
        """
        events: list[LiveEvent] = []
        every = hypothesis_words(buffer.hypothesis, self._tokenizer)
        words = every[:count]
        end, old = (words[-1].stop if words else 0), len(buffer.committed)
        stop = end
        if words and count >= len(every) and not with_mark and self._vad.tells_long_pauses:
            stop = self._before_mark(buffer.hypothesis, words[-1])
        if stop > old:
            text = self._tokenizer.text(buffer.hypothesis[old:stop])
            events += self._commit_mark(text)
            offset_s = buffer.offset / SAMPLE_RATE
            times = buffer.token_times[old:stop]
            start = max(self._committed_until_s, offset_s + max(0.0, times[0] - _WORD_LEAD_S))
            end_s = buffer.decoded_s if final else min(buffer.decoded_s, times[-1] + WORD_TRAIL_S)
            self._committed_until_s = max(start, offset_s + end_s)
            timed = self._timed_words(buffer, stop, start)
            said = CommittedText(text, start, self._committed_until_s, timed, self.language)
            events.append(self._kept(said, self._text_tokens(buffer.hypothesis[old:stop])))
            buffer.committed = buffer.hypothesis[:stop]
            self._clarity += [
                probability
                for token, probability in zip(
                    buffer.hypothesis[old:stop], buffer.token_probabilities[old:stop], strict=True
                )
                if self._tokenizer.is_text(token)
            ]
        partial = "" if final else self._running_text(buffer, every)
        if partial != self._partial_text or (events and partial):
            self._partial_text = partial
            events.append(PartialText(partial, self.language))
        if final:
            if end > max(stop, old):
                self._mark = self._mark_of(buffer, slice(max(stop, old), end))
            self._extend_context(buffer.committed)
        return events

    def _before_mark(self, tokens: Sequence[int], word: HypothesisWord) -> int:
        """Index after the last word without the mark of a pause behind it."""
        stop = word.stop
        while stop > word.stop - len(word.tokens) + 1:
            if not _PAUSE_MARKS.issuperset(self._tokenizer.text([tokens[stop - 1]]).strip()):
                break
            stop -= 1
        return stop

    def _mark_of(self, buffer: LiveBuffer, part: slice) -> Word:
        """The mark behind the committed text of a buffer."""
        probabilities = buffer.token_probabilities[part]
        text, at = self._tokenizer.text(buffer.hypothesis[part]), self._committed_until_s
        return Word(text, at, at, sum(probabilities) / len(probabilities))

    def _commit_mark(self, text: str = "") -> list[LiveEvent]:
        """Decide on the mark at the last pause: a sentence goes on with a small letter."""
        mark, self._mark = self._mark, None
        if mark is None or _goes_on(text):
            return []
        self._sentence = []
        language = self._sentence_language
        return [self._kept(CommittedText(mark.word, mark.start, mark.end, (mark,), language))]

    def _kept(self, event: CommittedText, tokens: int = 0) -> CommittedText:
        """Keep committed text of so many text tokens for its correction; returns it."""
        if self._part is not None:
            self._part.add_text(event, tokens)
        return event

    def _running_text(self, buffer: LiveBuffer, words: Sequence[HypothesisWord]) -> str:
        """The text after the committed text, as it is shown. words: of the whole hypothesis."""
        tokens, committed = buffer.hypothesis, len(buffer.committed)
        if self._options.calm:
            stop = words[-2].stop if len(words) > 1 else 0
            text = self._tokenizer.text(tokens[committed:stop]).rstrip(_SENTENCE_MARKS)
        else:
            text = self._tokenizer.text(tokens[committed:])
        if self._mark is None or not text or _goes_on(text):
            return text
        return self._mark.word + text

    def _timed_words(self, buffer: LiveBuffer, stop: int, start_s: float) -> tuple[Word, ...]:
        """Words that are committed up to token `stop`, with their times and probabilities."""
        offset_s, timed = buffer.offset / SAMPLE_RATE, list[Word]()
        committed = len(buffer.committed)
        for word in hypothesis_words(buffer.hypothesis[:stop], self._tokenizer):
            if word.stop <= committed:
                continue
            # A word that was committed before it was complete has only its rest here.
            indices = range(max(committed, word.stop - len(word.tokens)), word.stop)
            times = [buffer.token_times[index] for index in indices]
            start = max(start_s, offset_s + times[0] - _WORD_LEAD_S)
            end = min(self._committed_until_s, offset_s + times[-1] + WORD_TRAIL_S)
            start_s = max(start, end)
            probabilities = [buffer.token_probabilities[index] for index in indices]
            probability = sum(probabilities) / len(probabilities)
            text = self._tokenizer.text([buffer.hypothesis[index] for index in indices])
            timed.append(Word(text, min(start, start_s), start_s, probability))
        return tuple(timed)

    def _extend_context(self, tokens: Sequence[int]) -> None:
        """Append committed text tokens to the context, of which the last are kept."""
        text = [token for token in tokens if self._tokenizer.is_text(token)]
        joined = [*self._context, *text]
        self._context = joined[max(0, len(joined) - self._options.context_tokens) :]
        self._sentence_language = self.language
        for token in text:
            ends = self._tokenizer.text([token]).rstrip().endswith((".", "?", "!", "…"))
            self._sentence = [] if ends else [*self._sentence, token]

    def _text_tokens(self, tokens: Sequence[int]) -> int:
        return sum(map(self._tokenizer.is_text, tokens))

    def _trim(self, buffer: LiveBuffer, ends_early: bool) -> list[LiveEvent]:
        """Drop the segments that are complete and committed, once half the window is full.

        Sooner if the model ends at the end of a segment although speech follows it: as offline, the
        rest is decoded as a window of its own, without which its words would be lost.
        """
        if not ends_early and buffer.decoded_s < self._window_s / 2:
            return []
        if not self._pop_segments(buffer):
            return []
        if ends_early and not self._text_tokens(buffer.hypothesis):
            buffer.decoded_samples = 0  # the rest is due as soon as more audio comes
        if (
            self._part is None
            or buffer.offset - self._part.offset < self._window_s / 2 * SAMPLE_RATE
        ):
            return []
        return self._due(buffer.offset, self._text_tokens(buffer.committed))

    def _ends_early(self, buffer: LiveBuffer, speech_end: int) -> bool:
        """Whether the model ended at the end of a segment although speech follows."""
        begin = self._tokenizer.timestamp_begin
        end_s = None if begin is None else buffer.last_segment_end_s(begin)
        if end_s is None:
            return False
        speech_s = (speech_end - buffer.offset) / SAMPLE_RATE
        return min(speech_s, buffer.decoded_s) - end_s >= _LEAST_REST_S

    def _pop_segments(self, buffer: LiveBuffer) -> bool:
        """Drop the segments that are complete and committed; whether there were any."""
        begin = self._tokenizer.timestamp_begin
        removed = [] if begin is None else buffer.pop_committed_segments(begin)
        self._extend_context(removed)
        return bool(removed)


def _goes_on(text: str) -> bool:
    """Whether text after a pause continues the sentence before it: it begins with a small letter.

    A mark of its own, such as a comma, replaces the one before.
    """
    first = text.lstrip()[:1]
    return first.islower() or first in _PAUSE_MARKS | {",", ";", ":"}


def _max_tokens(seconds: float) -> int:
    """Upper bound on the tokens of `seconds` of speech; more are a repetition loop."""
    return 16 + int(20 * seconds)
