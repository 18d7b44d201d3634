"""Leaves out the parts of a recording without speech, and finds its times again.

Reference: faster-whisper's vad.py: the same parts, from the probabilities of Silero's network.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.asr.options import VadOptions
from pipelines.asr.results import Segment

SampleSpan = tuple[int, int]
"""First sample, and the one after the last."""

_MIN_SPLIT_SILENCE_S = 0.098  # shortest silence at which too long speech is cut
_SECONDS_DIGITS = 2  # times are rounded, as in faster-whisper


# faster-whisper's, but for the threshold.
WINDOW_VAD = VadOptions(
    min_speech_duration_ms=0,
    max_speech_duration_s=math.inf,
    min_silence_duration_ms=2000,
    speech_pad_ms=400,
)


def keep_speech(samples: Samples, options: VadOptions) -> tuple[Samples, SpeechMap]:
    """The parts of a recording with speech, one after the other.

    Returns:
        The samples [m] of these parts, and where they were.
    """
    spans = speech_spans(samples, options)
    kept = [samples[start:end] for start, end in spans]
    return np.concatenate(kept) if kept else np.zeros(0, np.float32), SpeechMap(spans)


def speech_spans(
    samples: Samples,
    options: VadOptions,
    probabilities: Callable[[Samples], Sequence[float]] | None = None,
) -> list[SampleSpan]:
    """The parts of a recording with speech, as faster-whisper's get_speech_timestamps finds them.

    Args:
        samples: Mono float32 [n] at 16 kHz.
        options: What counts as speech.
        probabilities: Samples [k · 512] → probability of speech of each frame. None: Silero's.

    Returns:
        The parts, padded, in ascending order.
    """
    options = options.over(WINDOW_VAD)
    padded = np.pad(samples, (0, FRAME - len(samples) % FRAME))
    frames = (probabilities or SileroDetector().probabilities)(padded)
    spans = _unpadded_spans(frames, len(samples), options)
    return _padded(spans, len(samples), options.samples("speech_pad_ms"))


def _unpadded_spans(frames: Sequence[float], length: int, options: VadOptions) -> list[SampleSpan]:
    threshold, release = options.threshold, options.release
    min_speech = options.samples("min_speech_duration_ms")
    min_silence = options.samples("min_silence_duration_ms")
    longest_s = options.max_speech_duration_s or math.inf
    max_speech = SAMPLE_RATE * longest_s - FRAME - 2 * options.samples("speech_pad_ms")
    spans: list[SampleSpan] = []
    start: int | None = None
    silence_start = 0  # of the silence that may end the speech; 0: there is none
    # The last silence at which too long speech can be cut, and where speech went on after it.
    cut_end = cut_start = 0
    for index, probability in enumerate(frames):
        at = FRAME * index
        if probability >= threshold and silence_start:
            silence_start = 0
            if cut_start < cut_end:
                cut_start = at
        if probability >= threshold and start is None:
            start = at
            continue
        if start is not None and at - start > max_speech:
            if cut_end:
                spans.append((start, cut_end))
                start = None if cut_start < cut_end else cut_start
                cut_end = cut_start = silence_start = 0
            else:
                spans.append((start, at))
                start = None
                cut_end = cut_start = silence_start = 0
                continue
        if probability < release and start is not None:
            silence_start = silence_start or at
            if at - silence_start > SAMPLE_RATE * _MIN_SPLIT_SILENCE_S:
                cut_end = silence_start
            if at - silence_start >= min_silence:
                if silence_start - start > min_speech:
                    spans.append((start, silence_start))
                start = None
                cut_end = cut_start = silence_start = 0
    if start is not None and length - start > min_speech:
        spans.append((start, length))
    return spans


def _padded(spans: Sequence[SampleSpan], length: int, pad: int) -> list[SampleSpan]:
    """The spans with audio around them; half of the silence each where there is too little."""
    padded: list[SampleSpan] = []
    next_start = max(0, spans[0][0] - pad) if spans else 0
    for index, (_, end) in enumerate(spans):
        start = next_start
        if index + 1 == len(spans):
            padded.append((start, min(length, end + pad)))
            continue
        following = spans[index + 1][0]
        silence = following - end
        if silence < 2 * pad:
            padded.append((start, end + silence // 2))
            next_start = max(0, following - silence // 2)
        else:
            padded.append((start, min(length, end + pad)))
            next_start = max(0, following - pad)
    return padded


class SpeechMap:
    """Finds times of a recording from times of its speech alone."""

    def __init__(self, spans: Sequence[SampleSpan]) -> None:
        self._ends: list[int] = []  # samples of speech up to the end of each part
        self._silence_s: list[float] = []  # seconds left out before each part
        silence = previous = 0
        for start, end in spans:
            silence += start - previous
            previous = end
            self._ends.append(end - silence)
            self._silence_s.append(silence / SAMPLE_RATE)

    def original(self, seconds: float, *, is_end: bool = False, part: int | None = None) -> float:
        """The time in the recording.

        Args:
            seconds: Time in the speech alone.
            is_end: The end of something: at the border of two parts it belongs to the first.
            part: The part that it belongs to; None: found by the time.
        """
        if not self._ends:
            return seconds
        part = self.part(seconds, is_end=is_end) if part is None else part
        return round(self._silence_s[part] + seconds, _SECONDS_DIGITS)

    def part(self, seconds: float, *, is_end: bool = False) -> int:
        """The index of the part that a time lies in."""
        sample = int(seconds * SAMPLE_RATE)
        if is_end and sample in self._ends:
            return self._ends.index(sample)
        return min(bisect.bisect(self._ends, sample), len(self._ends) - 1)

    def restore(self, segment: Segment) -> Segment:
        """A segment with its times in the recording; a word lies in the part of its middle."""
        if not segment.words:
            return replace(
                segment,
                start=self.original(segment.start),
                end=self.original(segment.end, is_end=True),
            )
        words = []
        for word in segment.words:
            part = self.part((word.start + word.end) / 2) if self._ends else None
            words.append(
                replace(
                    word,
                    start=self.original(word.start, part=part),
                    end=self.original(word.end, part=part),
                )
            )
        return replace(segment, start=words[0].start, end=words[-1].end, words=tuple(words))
