"""The figures of the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.work import Unit

__all__ = ["Figure"]


@dataclass(frozen=True)
class Figure:
    """The result of one library for one task.

    Attributes:
        shape: Name of the model shape.
        work: Key of the task.
        title: Title of the task in tables.
        peer: Name of the library, as a column of the table.
        unit: Unit of the runs.
        runs: The value of each run.
        configuration: The configuration that was measured.
        limit_ms: For a step, the time that reading the weights and the cache from memory takes.
        missing: Why there are no runs; None where there are some.
        why: Which kernels were chosen, where the library reports it.
    """

    shape: str
    work: str
    title: str
    peer: str
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
        """Minimum and maximum."""
        return min(self.runs), max(self.runs)
