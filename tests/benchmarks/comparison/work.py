"""The tasks that are measured, and their input, which is the same for all libraries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tests.benchmarks.comparison.shapes import Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "KINDS",
    "Kind",
    "Line",
    "Task",
    "Unit",
    "features",
    "lines",
    "samples",
    "sentence",
    "tasks_for",
]

Kind = Literal["step", "encode", "window", "windows", "lines", "growth", "memory"]
KINDS: tuple[Kind, ...] = ("step", "encode", "window", "windows", "lines", "growth", "memory")
Unit = Literal["ms", "tokens/s", "×", "MB"]

# Batch size → tokens after the first, over which the time of a step is averaged.
_STEP_TOKENS = {1: 64, 8: 32, 32: 16}
_WINDOW_S = 30
_SOURCE_TOKENS = 30
# Few different target lengths: libraries with one length per call then get full batches.
_TARGET_LENGTHS = (4, 6, 8, 10, 12, 16, 20, 28, 40, 60, 90)


@dataclass(frozen=True)
class Task:
    """One task of a shape.

    Attributes:
        kind: "step": one decoding step, in ms. "encode": from the features of a window to the
            first token, in ms. "window": from 30 s of samples to the last token, in ms.
            "windows": from the features of `batch` windows to the last token, in ms. "lines":
            `batch` lines of mixed length, in tokens/s. "growth": a step after `tokens` tokens
            over a step after a few. "memory": peak memory, in MB.
        batch: Number of rows.
        tokens: Number of new tokens per row.
    """

    kind: Kind
    batch: int
    tokens: int

    @property
    def key(self) -> str:
        return f"{self.kind} {self.batch}" if self.kind in ("step", "windows") else self.kind

    @property
    def unit(self) -> Unit:
        units: dict[Kind, Unit] = {"lines": "tokens/s", "growth": "×", "memory": "MB"}
        return units.get(self.kind, "ms")

    def title(self) -> str:
        """The title in tables."""
        return {
            "step": f"a step, batch {self.batch}",
            "encode": "30 s encoded, to the first token",
            "window": f"30 s whole, {self.tokens} tokens",
            "windows": f"{self.batch} × 30 s at once, {self.tokens} tokens each",
            "lines": f"{self.batch:,} lines of mixed length",
            "growth": f"a step after {self.tokens} tokens against one after 10",
            "memory": "peak memory above the import",
        }[self.kind]


def tasks_for(
    shape: Shape, kinds: Sequence[str] = KINDS, batches: Sequence[int] = ()
) -> list[Task]:
    """The tasks of a shape, in the order of the table.

    Args:
        shape: The model.
        kinds: Kinds to include.
        batches: Batch sizes of steps; empty takes those of the shape.
    """
    tasks = [Task("step", batch, _STEP_TOKENS.get(batch, 32)) for batch in batches or shape.batches]
    if shape.kind == "whisper":
        tasks += [Task("encode", 1, 1), Task("window", 1, 100), Task("windows", 8, 50)]
    else:
        tasks += [Task("lines", 2000, 0)]
    tasks += [Task("growth", 1, 440), Task("memory", 1 if shape.kind == "whisper" else 8, 100)]
    return [task for task in tasks if task.kind in kinds]


def features(shape: Shape, count: int) -> NDArray[np.float32]:
    """Log-mel features of `count` windows of noise, [count, mels, frames]."""
    import numpy as np

    mels = int(shape.config.get("num_mel_bins", 80))
    noise = np.random.default_rng(0).standard_normal((count, mels, shape.frames), np.float32)
    return noise * np.float32(0.5)


def samples() -> NDArray[np.float32]:
    """30 s of noise at 16 kHz."""
    import numpy as np

    return np.random.default_rng(0).standard_normal(_WINDOW_S * 16_000, np.float32) * np.float32(
        0.1
    )


def sentence(shape: Shape) -> list[int]:
    """The ids of a sentence, with eos."""
    return _ids(random.Random(0), shape, _SOURCE_TOKENS)


@dataclass(frozen=True)
class Line:
    """A line to translate: source ids with eos, and the number of tokens to generate."""

    ids: tuple[int, ...]
    tokens: int


def lines(shape: Shape, count: int) -> list[Line]:
    """Lines with realistic lengths: nine in ten are short (log-normal as in Tatoeba, median 9
    tokens), one in ten is long, up to 90 tokens."""
    drawn = random.Random(1)
    made = []
    for _ in range(count):
        long = drawn.random() < 0.1
        length = drawn.uniform(25, 90) if long else drawn.lognormvariate(2.2, 0.4)
        ids = _ids(drawn, shape, max(3, round(length)))
        wanted = 1.1 * len(ids)
        made.append(Line(tuple(ids), min(_TARGET_LENGTHS, key=lambda n: abs(n - wanted))))
    return made


def _ids(drawn: random.Random, shape: Shape, length: int) -> list[int]:
    top = int(shape.config["vocab_size"]) - 2
    return [*(drawn.randint(3, top) for _ in range(length - 1)), shape.eos]
