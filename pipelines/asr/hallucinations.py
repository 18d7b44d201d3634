"""Skips silence before text that was probably made up: `hallucination_silence_threshold`.

Reference: openai-whisper's transcribe.py. Text is suspicious where its words are improbable, or
too short or too long to have been spoken, and where silence or more such text surrounds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.results import Segment, Word

_PUNCTUATION = "\"'“¿([{-\"'.。,，!！?？:：”)]}、"
_MIN_PROBABILITY = 0.15
_SHORTEST_WORD_S, _LONGEST_WORD_S = 0.133, 2.0
_WORDS = 8  # the first words of a segment decide
_EDGE_S = 2.0  # from the window's edge, where nothing is known about what surrounds it


@dataclass(frozen=True)
class WindowTimes:
    """Where a window lies in its recording.

    Attributes:
        seek: Its first frame (10 ms).
        frames: How many of its frames are audio.
        length: Its length in frames, padding included.
        last_frame: The frame after the recording's last one; None if it is not known yet.
    """

    seek: int
    frames: int
    length: int
    last_frame: int | None

    @property
    def start(self) -> float:
        """Seconds."""
        return self.seek / FRAMES_PER_SECOND

    @property
    def end(self) -> float:
        """Seconds, padding included."""
        return (self.seek + self.length) / FRAMES_PER_SECOND

    @property
    def audio_end(self) -> float:
        """Seconds at which the audio ends."""
        return self.start + self.frames / FRAMES_PER_SECOND


def is_suspicious(segment: Segment | None) -> bool:
    """Whether the words of a segment look made up."""
    if segment is None or not segment.words:
        return False
    words = [word for word in segment.words if word.word not in _PUNCTUATION][:_WORDS]
    score = sum(map(_anomaly, words))
    return score >= 3 or score + 0.01 >= len(words)


def _anomaly(word: Word) -> float:
    duration = word.end - word.start
    score = 1.0 if word.probability < _MIN_PROBABILITY else 0.0
    if duration < _SHORTEST_WORD_S:
        score += (_SHORTEST_WORD_S - duration) * 15
    if duration > _LONGEST_WORD_S:
        score += duration - _LONGEST_WORD_S
    return score


def skip_hallucinations(
    segments: Sequence[Segment],
    times: WindowTimes,
    *,
    threshold: float,
    last_speech: float,
    ended: bool,
    seek: int,
) -> tuple[list[Segment] | None, int]:
    """Drop the segments of a window that were probably made up.

    Args:
        segments: The segments of the window, with words.
        times: Where the window lies.
        threshold: Silence of this length (s) is long.
        last_speech: Seconds at which the speech before the window ended.
        ended: The window's text ends with one timestamp: no speech follows in it.
        seek: The frame at which decoding would go on.

    Returns:
        The segments to keep, and the frame at which decoding goes on. None: the window is to be
        decoded again from that frame on, after the silence at its beginning.
    """
    if not ended:
        end = last_word_end(segments)
        if end is not None and end > times.start:
            remaining = times.end - end
            after_window = times.seek + times.frames
            seek = round(end * FRAMES_PER_SECOND) if remaining > threshold else after_window
    first = _next_with_words(segments)
    if first is not None and is_suspicious(first):
        gap = first.start - times.start
        if gap > threshold:
            return None, times.seek + round(gap * FRAMES_PER_SECOND)
    spoken_until = last_speech
    for index, segment in enumerate(segments):
        if not segment.words:
            continue
        if is_suspicious(segment):
            following = _next_with_words(segments[index + 1 :])
            next_start = times.audio_end if following is None else following.words[0].start
            silence_before = (
                segment.start - spoken_until > threshold
                or segment.start < threshold
                or segment.start - times.start < _EDGE_S
            )
            silence_after = (
                next_start - segment.end > threshold
                or is_suspicious(following)
                or times.end - segment.end < _EDGE_S
            )
            if silence_before and silence_after:
                seek = round(max(times.start + 1, segment.start) * FRAMES_PER_SECOND)
                last = times.last_frame
                if last is not None and last / FRAMES_PER_SECOND - segment.end < threshold:
                    seek = last
                return list(segments[:index]), seek
        spoken_until = segment.end
    return list(segments), seek


def _next_with_words(segments: Sequence[Segment]) -> Segment | None:
    return next((segment for segment in segments if segment.words), None)


def last_word_end(segments: Sequence[Segment]) -> float | None:
    """The end of the last word, or of the last segment where there are no words; seconds."""
    ends = [segment.words[-1].end for segment in segments if segment.words]
    return ends[-1] if ends else (segments[-1].end if segments else None)
