"""What every rival has to offer to be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import Line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Configuration", "PeerBackend", "Runner"]


@dataclass(frozen=True)
class Configuration:
    """One way to run a rival.

    batch: how many lines it takes at once, where it is given many; 0 is its own default.
    workers: how many batches side by side, each with so many threads.
    """

    dtype: str
    threads: int
    batch: int = 0
    workers: int = 1

    def __str__(self) -> str:
        side_by_side = f" × {self.workers}" if self.workers > 1 else ""
        lines = f", {self.batch} lines" if self.batch else ""
        return f"{self.dtype} × {self.threads}{side_by_side}{lines}"


class Runner(ABC):
    """A rival with a model in memory, in one configuration."""

    def ready(self) -> None:  # noqa: B027 - most have nothing to do
        """Called before each run."""

    @abstractmethod
    def encode(self, count: int) -> Any:
        """So many sources, encoded, in one batch; where a rival cannot part that from decoding,
        the sources themselves."""

    @abstractmethod
    def widen(self, encoded: Any, batch: int) -> Any:
        """What `encode(batch)` would give, from one encoded source; no memory is shared."""

    @abstractmethod
    def decode(
        self, encoded: Any, tokens: int, ticks: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        """Greedily so many new tokens for each source. ticks: is told when each was there, by
        rivals that let one see it."""

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        """30 s of samples at 16 kHz → so many tokens, with its own log-mel features."""
        raise NotImplementedError

    def translate(self, lines: Sequence[Line]) -> int:
        """All lines, each with as many new tokens as it wants; how many these were in all."""
        raise NotImplementedError

    def step_bytes(self, encoded: Any) -> tuple[float, float]:
        """(bytes a weight has that a step reads, bytes a number of the source's keys has)."""
        raise NotImplementedError

    def explain(self) -> str:
        """Which kernels were chosen and why, where a rival tells."""
        return ""


class PeerBackend(ABC):
    """A rival. Raises ModuleNotFoundError when made where its package is not installed.

    lines_share: of many lines it translates one in so many; it would take minutes for all.
    """

    lines_share = 1

    def __init__(self, shape: Shape, folder: Path, device: str) -> None:
        self.shape, self.folder, self.device = shape, folder, device

    @abstractmethod
    def dtypes(self) -> Sequence[str]:
        """Those in which it is worth a try here."""

    def cuts(self, best: Configuration, cores: int) -> Sequence[Configuration]:
        """Other ways to go about many lines."""
        return []

    @abstractmethod
    def load(self, configuration: Configuration) -> Runner: ...
