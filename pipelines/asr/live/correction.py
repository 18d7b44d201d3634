"""Correction of live text: a finished utterance is decoded once more, as a recording is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.features import HOP
from pipelines.asr.live.events import CommittedText, CorrectedText, CorrectionDue
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Segment, SegmentDone
from pipelines.asr.transcriber import Transcriber

_CLEAR = 0.8  # mean probability of the words of a text that may be the context of the next one
_BEAMS = 5
# A correction with more letters, relative to those of the text, says again what was said before.
_MOST_LETTERS, _FEW_LETTERS = 1.5, 20
# Mean log-probability below which a correction is no better than what was heard first. Sampling at
# higher temperatures, as for recordings, would make words up.
_LEAST_LOGPROB = -0.8


@dataclass
class SpokenPart:
    """The sound and the committed text of what is being said, until it can be corrected.

    Attributes:
        offset: position of its first sample in the stream.
        end: position after its last sample.
    """

    offset: int = 0
    end: int = 0
    _sound: list[Samples] = field(default_factory=list)
    _texts: list[tuple[CommittedText, int]] = field(default_factory=list)  # with text tokens
    _last: CommittedText | None = None  # what was said before, as one text

    def add_sound(self, at: int, samples: Samples) -> None:
        """Add sound. What is missing before it becomes silence.

        Args:
            at: position of samples[0] in the stream.
            samples: mono float32 [n] at 16 kHz.
        """
        if not self._sound:
            self.offset = self.end = at
        missing = at - self.end
        self._sound += [np.zeros(max(0, missing), np.float32), samples[max(0, -missing) :]]
        self.end = max(self.end, at + len(samples))

    def add_text(self, event: CommittedText, tokens: int) -> None:
        """Add committed text, which has so many text tokens."""
        self._texts.append((event, tokens))

    def cut(self, end: int, tokens: int = 0) -> CorrectionDue | None:
        """Take what was said up to a position in the stream; the rest stays.

        Args:
            end: the position.
            tokens: the last text tokens that were committed belong to what follows.

        Returns:
            None if there is no text, or the position lies within a committed text.
        """
        count = len(self._texts)
        while tokens > 0 and count:
            count -= 1
            tokens -= self._texts[count][1]
        if tokens < 0:
            return None
        said, self._texts = [event for event, _ in self._texts[:count]], self._texts[count:]
        samples = np.concatenate([np.zeros(0, np.float32), *self._sound])
        at = end - self.offset
        offset, self.offset = self.offset, end
        self._sound = [samples[at:]] if len(samples) > at else []
        before = self._last
        if not said:
            return None
        text = "".join(event.text for event in said)
        words = tuple(word for event in said for word in event.words)
        language = said[-1].language
        self._last = CommittedText(text, said[0].start, said[-1].end, words, language)
        context = before.text.strip() if before is not None and _is_clear(before, language) else ""
        return CorrectionDue(
            samples[:at], offset, text, said[0].start, said[-1].end, language, context
        )


def _is_clear(text: CommittedText, language: str | None) -> bool:
    """Whether text is in a language, and was understood well enough to be context."""
    probabilities = [word.probability for word in text.words]
    clear = bool(probabilities) and sum(probabilities) / len(probabilities) >= _CLEAR
    return clear and text.language == language


def corrected_text(
    transcriber: Transcriber,
    due: CorrectionDue,
    options: TranscribeOptions,
    is_wanted: Callable[[], bool],
) -> CorrectedText | None:
    """Decode speech once more, as a chunk of a recording, with the text before it as the prompt and
    with beam search.

    Args:
        transcriber: the model.
        due: the speech.
        options: those of the live session.
        is_wanted: asked while it is decoded; when it says no, decoding ends.

    Returns:
        The text; None if it is the same, empty, improbable, repetitive or far too long, or not
        wanted any more.
    """
    # Models without the times of words have no prompts either.
    whisper = transcriber.capabilities.word_timestamps
    given = options.initial_prompt
    prompt: str | tuple[int, ...] | None = due.context or None
    if isinstance(given, tuple):
        tokens = transcriber.tokenizer.encode(f" {due.context}") if due.context else []
        prompt = (*given, *tokens)
    elif given:
        prompt = f"{given} {due.context}" if due.context else given
    options = replace(
        options,
        language=due.language,
        languages=(),
        initial_prompt=prompt if whisper else given,
        word_timestamps=whisper,
        beam_size=_BEAMS,
        temperature=0.0,
    )
    chunk = Chunk(0, len(due.samples) // HOP, 0, due.samples, 1)
    segments = list[Segment]()
    with closing(transcriber.stream_chunks([chunk], options)) as events:
        for event in events:
            if not is_wanted():
                return None
            if isinstance(event, SegmentDone):
                segments.append(event.segment)
    most = options.compression_ratio_threshold or math.inf
    if any(s.avg_logprob < _LEAST_LOGPROB or s.compression_ratio > most for s in segments):
        return None
    text = "".join(segment.text for segment in segments)
    if not text.strip() or text.split() == due.text.split():
        return None
    if _letters(text) > _MOST_LETTERS * _letters(due.text) + _FEW_LETTERS:
        return None
    offset_s = due.offset / SAMPLE_RATE

    def within(time: float) -> float:
        return min(max(offset_s + time, due.start), due.end)

    words = tuple(
        replace(word, start=within(word.start), end=within(word.end))
        for segment in segments
        for word in segment.words
    )
    return CorrectedText(text, due.start, due.end, due.text, words, due.language)


def _letters(text: str) -> int:
    return len("".join(text.split()))
