"""The open end of a live stream: audio of one utterance that is not final, and its hypothesis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples, quietest_point
from pipelines.asr.live.hypothesis import segment_starts, shift_timestamps
from pipelines.asr.timestamps import TIME_PRECISION

WORD_TRAIL_S = 0.1
"""Alignment gives one time a token; a word is taken to end so much after it (s)."""

# A timestamp may lie so much before the aligned time of the same word (s). One that lies further
# before it is wrong.
_TIME_TOLERANCE_S = 0.5
_TIMESTAMP_STEP = TIME_PRECISION * SAMPLE_RATE  # samples from one timestamp to the next


@dataclass
class LiveBuffer:
    """One utterance, or its latest part, with the latest hypothesis for it.

    Attributes:
        offset: position of the buffer's first sample in the stream.
        samples: mono float32 [n] at 16 kHz.
        hypothesis: token ids of the latest accepted update.
        committed: token ids that will not change; the beginning of `hypothesis`.
        token_times: aligned time of each token of `hypothesis` (s), from the buffer's start.
        token_probabilities: of each token of `hypothesis`.
        decoded_samples: samples of the buffer that the latest update decoded; 0 if none did yet.
        rejected: the latest update was repetitive, so `hypothesis` is from an earlier one.
        due_samples: samples that the update now due is to decode; None: none is due.
        waits: the latest update decoded nothing, because the language is not known yet.
        context: token ids of the sentence that it may continue, said before a short pause.
    """

    offset: int
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    hypothesis: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    token_probabilities: list[float] = field(default_factory=list)
    decoded_samples: int = 0
    rejected: bool = False
    due_samples: int | None = None
    waits: bool = False
    context: Sequence[int] = ()

    @property
    def decoded_s(self) -> float:
        """Seconds of the buffer that the latest update decoded."""
        return self.decoded_samples / SAMPLE_RATE

    @property
    def committed_s(self) -> float:
        """Time of the last committed token (s), from the buffer's start; 0.0 without one."""
        return self.token_times[len(self.committed) - 1] if self.committed else 0.0

    def last_segment_end_s(self, timestamp_begin: int) -> float | None:
        """Where the last segment ends (s), if the hypothesis ends with a complete one, else None.

        Two timestamps at the end of a hypothesis mean that the next window begins there.
        """
        last = self.hypothesis[-2:]
        if self.rejected or len(last) < 2 or min(last) < timestamp_begin:
            return None
        steps = self._end_steps(len(self.hypothesis) - 1, timestamp_begin)
        return min(steps * TIME_PRECISION, self.decoded_s)

    def _end_steps(self, count: int, timestamp_begin: int) -> int:
        """Where the first `count` tokens of the hypothesis end, in steps of timestamps.

        At their last token, a timestamp; if no text follows, behind their last word if that lies
        after it: it would be recognized again.
        """
        steps = self.hypothesis[count - 1] - timestamp_begin
        if any(token < timestamp_begin for token in self.hypothesis[count:]):
            return steps
        tokens = zip(self.hypothesis[:count], self.token_times, strict=False)
        word_s = max((time for token, time in tokens if token < timestamp_begin), default=0.0)
        if word_s - steps * TIME_PRECISION <= _TIME_TOLERANCE_S:
            return steps
        return math.ceil((word_s + WORD_TRAIL_S) / TIME_PRECISION)

    def append(self, samples: Samples, min_chunk: int) -> None:
        """Add audio; an update becomes due once `min_chunk` samples are new."""
        self.samples = np.concatenate([self.samples, samples])
        scheduled = self.decoded_samples if self.due_samples is None else self.due_samples
        if len(self.samples) - scheduled >= min_chunk:
            self.due_samples = len(self.samples)

    def split(self, max_samples: int) -> LiveBuffer:
        """Cut the buffer at its quietest point within `max_samples`; returns the rest.

        The cut lies in the second half and after the committed text. The rest is not decoded yet.
        """
        cut = _quietest_point(self.samples[:max_samples], self.committed_s)
        rest = LiveBuffer(self.offset + cut, self.samples[cut:])
        self.samples, self.due_samples = self.samples[:cut], None
        return rest

    def set_hypothesis(
        self, tokens: Sequence[int], token_times: Sequence[float], probabilities: Sequence[float]
    ) -> None:
        """Replace the hypothesis."""
        self.hypothesis, self.token_times = list(tokens), list(token_times)
        self.token_probabilities = list(probabilities)

    def pop_committed_segments(self, timestamp_begin: int) -> list[int]:
        """Remove the leading segments that are complete and committed, with their audio.

        The remaining tokens and times are shifted to the new start of the buffer.

        Returns:
            The removed tokens; empty if no segment can be removed.
        """
        # The timestamp that follows committed text may be included: it is not text.
        limit = len(self.committed) + 1
        cuts = [i for i in segment_starts(self.hypothesis, timestamp_begin) if i <= limit]
        steps = self._end_steps(cuts[-1], timestamp_begin) if cuts else 0
        samples = int(steps * _TIMESTAMP_STEP)
        if not 0 < samples <= self.decoded_samples:
            return []
        removed, rest = self.hypothesis[: cuts[-1]], self.hypothesis[cuts[-1] :]
        committed = max(0, len(self.committed) - len(removed))
        times = [t - samples / SAMPLE_RATE for t in self.token_times[len(removed) :]]
        probabilities = self.token_probabilities[len(removed) :]
        self.set_hypothesis(shift_timestamps(rest, steps, timestamp_begin), times, probabilities)
        self.committed = self.hypothesis[:committed]
        self.samples = self.samples[samples:].copy()
        self.offset += samples
        self.decoded_samples -= samples
        return removed


def _quietest_point(samples: Samples, after_s: float) -> int:
    """Return the sample at which to cut speech without a pause, in its second half."""
    step = SAMPLE_RATE // 50  # 20 ms
    # Three of them: the closure of a "t" is shorter than a gap between words.
    length = 3 * step
    count = len(samples) // step
    start = min(count - 3, max(count // 2, round(after_s * 50) + 1) - 1) * step
    cut = start + quietest_point(samples[start : count * step], length, step)
    return min(len(samples), max(cut, math.ceil(after_s * SAMPLE_RATE)))
