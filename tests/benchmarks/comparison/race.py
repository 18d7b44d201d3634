"""The whole comparison: makes weights, then measures all tasks of all shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.errors import OptionError
from tests.benchmarks.comparison.backends.registry import Peer
from tests.benchmarks.comparison.figures import Figure
from tests.benchmarks.comparison.process import PeerMissing, PeerProcess
from tests.benchmarks.comparison.rounds import Said, measure
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import Task

__all__ = ["Results", "compare"]


@dataclass(frozen=True)
class Results:
    """All figures.

    Attributes:
        figures: One per library and task.
        bytes_per_s: Memory bandwidth of all threads together, or of the GPU.
        gpu: Name of the GPU; "" on the CPU.
    """

    figures: tuple[Figure, ...]
    bytes_per_s: float = 0.0
    gpu: str = ""

    def __add__(self, more: Results) -> Results:
        speed = self.bytes_per_s or more.bytes_per_s
        return Results(self.figures + more.figures, speed, self.gpu or more.gpu)


def compare(
    work: Mapping[Shape, Sequence[Task]],
    peers: Sequence[Peer],
    *,
    rounds: int,
    device: str,
    threads: Sequence[int] | None,
    said: Said,
) -> Results:
    """Measure all libraries on the tasks of each shape.

    Args:
        work: Shape → tasks.
        peers: The libraries.
        rounds: Maximum number of runs.
        device: "cpu" or "cuda".
        threads: Thread counts to try; None tries all useful ones.
        said: Receives progress messages.

    Raises:
        OptionError: transformers, which makes the weights, is not installed.
    """
    figures: list[Figure] = []
    bytes_per_s, gpu = 0.0, ""
    with TemporaryDirectory(prefix="edgeapp-bench-") as name:
        for shape, tasks in work.items():
            folder = Path(name) / shape.name
            said(f"{shape.name}: making random weights")
            with PeerProcess("prepare", shape, folder, device) as writer:
                try:
                    writer.ask("write")
                except PeerMissing:
                    raise OptionError(
                        "transformers makes the models that are compared, and is not installed: "
                        "pip install -e '.[test]' in a checkout"
                    ) from None
                if not bytes_per_s:
                    bytes_per_s, gpu = float(writer.ask("bandwidth")), writer.ask("gpu")
            figures += measure(
                shape,
                folder,
                tasks,
                peers,
                rounds=rounds,
                bytes_per_s=bytes_per_s,
                device=device,
                threads=threads,
                said=said,
            )
    return Results(tuple(figures), bytes_per_s, gpu)
