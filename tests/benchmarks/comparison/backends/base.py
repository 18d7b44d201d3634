"""The interface of a library that is measured."""

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
    """One configuration of a library.

    Attributes:
        dtype: Precision.
        threads: Threads per worker.
        batch: Lines per batch, for tasks of many lines; 0 is the default of the library.
        workers: Number of batches in parallel.
    """

    dtype: str
    threads: int
    batch: int = 0
    workers: int = 1

    def __str__(self) -> str:
        workers = f" × {self.workers}" if self.workers > 1 else ""
        lines = f", {self.batch} lines" if self.batch else ""
        return f"{self.dtype} × {self.threads}{workers}{lines}"


class Runner(ABC):
    """A library with a loaded model, in one configuration."""

    def ready(self) -> None:  # noqa: B027 - optional
        """Called before each run."""

    @abstractmethod
    def encode(self, count: int) -> Any:
        """`count` sources, encoded in one batch; the sources themselves where a library cannot
        separate encoding from decoding."""

    @abstractmethod
    def repeat(self, encoded: Any, batch: int) -> Any:
        """`batch` copies of one encoded source, in memory of their own."""

    @abstractmethod
    def decode(
        self, encoded: Any, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        """Decode `tokens` new tokens per source, greedily.

        Args:
            encoded: From `encode` or `repeat`.
            tokens: Number of new tokens.
            token_times: Receives the time (s, perf_counter) of each token, where the library
                allows it.
        """

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        """Transcribe 30 s at 16 kHz into `tokens` tokens, with the library's own features."""
        raise NotImplementedError

    def translate(self, lines: Sequence[Line]) -> int:
        """Translate lines, each into its number of tokens; returns the sum of these."""
        raise NotImplementedError

    def step_bytes(self, encoded: Any) -> tuple[float, float]:
        """Bytes per weight that a step reads, and bytes per number of the cross-attention keys."""
        raise NotImplementedError

    def explain(self) -> str:
        """Which kernels were chosen and why, where the library reports it."""
        return ""


class PeerBackend(ABC):
    """A library, which creates runners.

    Attributes:
        lines_share: Every n-th line is translated only; above 1 for slow libraries.

    Raises:
        ModuleNotFoundError: Its package is not installed.
    """

    lines_share = 1

    def __init__(self, shape: Shape, folder: Path, device: str) -> None:
        self.shape, self.folder, self.device = shape, folder, device

    @abstractmethod
    def dtypes(self) -> Sequence[str]:
        """The dtypes to try on this machine."""

    def batch_configurations(self, best: Configuration, cores: int) -> Sequence[Configuration]:
        """Other batch sizes and worker counts to try for many lines.

        Args:
            best: The best configuration so far.
            cores: Number of cores.
        """
        return []

    @abstractmethod
    def load(self, configuration: Configuration) -> Runner: ...
