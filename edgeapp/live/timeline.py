"""When recorded audio was said: a clock that never jumps, and what is missing between blocks."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pipelines.asr import Samples

__all__ = ["LONG_GAP_S", "Block", "Gap", "Timeline", "elapsed_s"]

LONG_GAP_S = 600.0
"""Files do not have silence in the place of a longer gap: they end, and others begin after it."""

_TOLERANCE_S = 0.15  # a block that arrives later than usual by this much may follow a gap
# The blocks behind a delayed one arrive at once, so that the delay becomes shorter by this much.
_CAUGHT_UP_S = 0.1
_PROOF_S = 1.0  # a delay that lasts for so long is a gap
_DRIFT = 5e-4  # by which the clocks of devices differ from the computer's at most


def elapsed_s() -> float:
    """Return the time (s) of a clock that is never set and runs on while the computer sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


@dataclass(frozen=True, eq=False)
class Block:
    """Audio as it arrived.

    Attributes:
        samples: Float32 at 16 kHz, [n], or [n, channels] of several; the filter that resamples
            holds a few back, which come with the next block.
        seconds: How long the device recorded it.
        arrived_s: When it arrived, by `elapsed_s`.
        dropped_s: Audio before it that was dropped because too much waited (s).
        is_zero: Whether the device sent nothing but zeros.
    """

    samples: Samples
    seconds: float
    arrived_s: float
    dropped_s: float = 0.0
    is_zero: bool = False


@dataclass(frozen=True)
class Gap:
    """Audio that was not recorded.

    Attributes:
        seconds: Its duration.
        reason: "start": the device began so much later; "dropped": too much waited; "missing": the
            sound system did not deliver it.
    """

    seconds: float
    reason: Literal["start", "dropped", "missing"]


class Timeline:
    """Places the blocks of one device in time, and finds the gaps between them.

    The time at which the sound system says that a block was recorded does not know what the system
    has dropped, so the time of arrival is used. A block that was only delayed is followed at once
    by those that waited behind it. If the delay lasts for a second, audio is missing. Where sound
    systems keep audio for a stopped program, they keep the oldest: the gap follows it.

    Args:
        began_s: The time of the first sample, by `elapsed_s`.
        latency_s: By which blocks usually arrive after their last sample was recorded.
    """

    def __init__(self, began_s: float, latency_s: float) -> None:
        self.end_s = began_s
        self._usual_s = latency_s
        self._waiting: deque[Block] = deque()
        self._has_begun = False
        self._arrived_s = float("-inf")  # the latest block that was taken

    @property
    def waiting_s(self) -> float:
        """Audio that was added and not taken (s)."""
        return sum(block.seconds for block in self._waiting)

    def add(self, block: Block) -> None:
        """Add the next block."""
        self._waiting.append(block)

    def take(self, *, ended: bool = False) -> Block | Gap | None:
        """Return the next block, or the gap before it; None if later blocks must decide.

        Args:
            ended: No more blocks will be added.
        """
        if not self._waiting:
            return None
        first = self._waiting[0]
        if first.dropped_s:
            self._waiting[0] = replace(first, dropped_s=0.0)
            return self._gap(first.dropped_s, "dropped")
        missing_s = self._missing_s(ended)
        if missing_s is None:
            return None
        if missing_s:
            return self._gap(missing_s, "missing" if self._has_begun else "start")
        self._has_begun = True
        self._arrived_s = first.arrived_s
        self.end_s += self._waiting.popleft().seconds
        usual_s = self._usual_s + _DRIFT * first.seconds
        self._usual_s = min(usual_s, first.arrived_s - self.end_s)
        return first

    def _missing_s(self, ended: bool) -> float | None:
        """Return the duration of the gap before the first block; None if it is not known yet."""
        delays, end_s = list[float](), self.end_s
        for block in self._waiting:
            end_s += block.dropped_s + block.seconds
            delays.append(block.arrived_s - end_s - self._usual_s)
        latest, first = self._waiting[-1], self._waiting[0]
        has_waited = first.arrived_s - self._arrived_s < first.seconds / 2  # behind the previous
        if delays[0] <= _TOLERANCE_S or has_waited or min(delays) < delays[0] - _CAUGHT_UP_S:
            return 0.0
        if latest.arrived_s - first.arrived_s >= _PROOF_S:
            return min(delays)
        if not ended:
            return None
        # No later blocks can prove it. A delay that is shorter may be one of a busy machine.
        return min(delays) if min(delays) >= _PROOF_S else 0.0

    def _gap(self, seconds: float, reason: Literal["start", "dropped", "missing"]) -> Gap:
        self._has_begun = True
        self.end_s += seconds
        return Gap(seconds, reason)
