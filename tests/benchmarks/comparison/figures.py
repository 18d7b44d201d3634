"""What was measured."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.work import Unit

__all__ = ["Figure"]


@dataclass(frozen=True)
class Figure:
    """One rival's result for one piece of work.

    runs: each run's value, in `unit`. limit_ms: for a step, how long the memory takes to be read.
    missing: why there are no runs, else None. why: which kernels were chosen, where a rival tells.
    """

    shape: str
    work: str
    title: str
    rival: str
    unit: Unit
    runs: tuple[float, ...] = ()
    configuration: Configuration | None = None
    limit_ms: float | None = None
    missing: str | None = None
    why: str = ""

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most."""
        return min(self.runs), max(self.runs)
