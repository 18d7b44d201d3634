"""The open end of a live stream: audio that is not settled yet, and what was made of it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.live.local_agreement import complete_segments, shift_tokens
from pipelines.asr.timestamps import TIME_PRECISION

__all__ = ["LiveBuffer"]

_STEP = TIME_PRECISION * SAMPLE_RATE  # samples from one timestamp to the next


@dataclass
class LiveBuffer:
    """One utterance, or its latest part. origin: samples of the stream before it."""

    origin: int
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    hypothesis: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)  # the start of the hypothesis
    times: list[float] = field(default_factory=list)  # of its tokens, from the start of the buffer
    decoded: int = 0  # samples that the hypothesis has heard
    doubted: bool = False  # the latest update gave none that can be believed
    due: int | None = None  # samples that an update is to hear now

    @property
    def heard_s(self) -> float:
        return self.decoded / SAMPLE_RATE

    @property
    def committed_s(self) -> float:
        """Where the last committed word was heard."""
        return self.times[len(self.committed) - 1] if self.committed else 0.0

    def add(self, samples: Samples, chunk: int) -> None:
        """More audio; an update is due once `chunk` samples are new."""
        self.samples = np.concatenate([self.samples, samples])
        known = self.decoded if self.due is None else self.due
        if len(self.samples) - known >= chunk:
            self.due = len(self.samples)

    def split(self, room: int) -> LiveBuffer:
        """Keep no more than `room` samples, up to where the speech is quietest; the rest."""
        cut = _quietest_point(self.samples[:room], self.committed_s)
        rest = LiveBuffer(self.origin + cut, self.samples[cut:])
        self.samples, self.due = self.samples[:cut], None
        return rest

    def believe(self, tokens: Sequence[int], times: Sequence[float]) -> None:
        """A new hypothesis."""
        self.hypothesis, self.times = list(tokens), list(times)

    def release(self, timestamp_begin: int) -> list[int]:
        """Let go of segments that are complete and committed, with their audio; their tokens."""
        known = len(self.committed) + 1  # the timestamp after committed text is no text
        cuts = [i for i in complete_segments(self.hypothesis, timestamp_begin) if i <= known]
        steps = self.hypothesis[cuts[-1] - 1] - timestamp_begin if cuts else 0
        samples = int(steps * _STEP)
        if not 0 < samples <= self.decoded:
            return []
        done, rest = self.hypothesis[: cuts[-1]], self.hypothesis[cuts[-1] :]
        committed = max(0, len(self.committed) - len(done))
        times = [t - samples / SAMPLE_RATE for t in self.times[len(done) :]]
        self.believe(shift_tokens(rest, steps, timestamp_begin), times)
        self.committed = self.hypothesis[:committed]
        self.samples = self.samples[samples:].copy()
        self.origin += samples
        self.decoded -= samples
        return done


def _quietest_point(samples: Samples, after_s: float) -> int:
    """Where best to cut speech that does not pause: the quietest moment of its second half, and
    not before `after_s`."""
    size = SAMPLE_RATE // 50
    energy = np.square(samples[: len(samples) // size * size].reshape(-1, size)).sum(axis=1)
    # Over three of these, so that the stop inside a "t" is not taken for the gap between words.
    energy = np.convolve(energy, np.ones(3, np.float32), mode="same")
    start = min(len(energy) - 1, max(len(energy) // 2, round(after_s * 50) + 1))
    return (start + int(np.argmin(energy[start:]))) * size + size // 2
