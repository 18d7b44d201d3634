"""One comparison: everybody does the same work in turn, several times; medians count."""

from __future__ import annotations

import copy
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers.utils import logging

from edgeapp.bench.contenders import Contender, Ours, Theirs
from edgeapp.bench.shapes import SHAPES, Shape

__all__ = ["Figures", "compare"]

_PRECISIONS = ("auto", "float32", "bfloat16", "int8")
_TRIAL_TOKENS = 12
# So many thread counts are tried for transformers; more only on a machine with more cores.
_FEW_CORES = 4


@dataclass(frozen=True)
class Figures:
    """What came out for one contender.

    first_ms: from the source to the first token: encoder, cross-attention keys and values, prompt.
    token_ms: each further token. faster: decoding against transformers in float32.
    """

    shape: str
    task: str
    engine: str
    precision: str
    threads: int
    first_ms: float
    token_ms: float
    faster: float


def compare(threads: int, tokens: int, rounds: int, said: Callable[[str], None]) -> list[Figures]:
    """Measure all shapes; `threads` for ours and for transformers in float32.

    tokens: new tokens a run. rounds: runs of each contender. said: hears what is going on.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    before = torch.get_num_threads()
    try:
        return [
            figures
            for shape in SHAPES
            for figures in _compare_one(shape, threads, tokens, rounds, said)
        ]
    finally:
        torch.set_num_threads(before)


def _compare_one(
    shape: Shape, threads: int, tokens: int, rounds: int, said: Callable[[str], None]
) -> list[Figures]:
    with TemporaryDirectory(prefix="edgeapp-bench-") as name:
        said(f"{shape.name}: making random weights")
        folder = Path(name)
        model = shape.write(folder)
        said(f"{shape.name}: looking for the best way to run transformers")
        contenders: list[Contender] = [
            Theirs(model, shape, threads),
            _best(model, shape),
            *(Ours(folder, shape, precision, threads) for precision in _PRECISIONS),
        ]
        contenders[1].engine += ", best"
        timed = [_Timed(contender) for contender in contenders]
        for number in range(rounds + 1):
            said(
                f"{shape.name}: round {number} of {rounds}" if number else f"{shape.name}: warm-up"
            )
            for each in timed:
                each.run(tokens, kept=number > 0)
    reference = timed[0].token_ms
    return [each.figures(shape, reference) for each in timed]


def _best(model: Any, shape: Shape) -> Theirs:
    """transformers in the precision and on the threads in which it is fastest here."""
    candidates = [model, copy.deepcopy(model).to(torch.bfloat16)]
    trials = [Theirs(each, shape, count) for each in candidates for count in _thread_counts()]
    for trial in trials:
        trial.seconds(2)
    # The better of two: what got in the way of one run is not the contender's fault.
    return min(trials, key=lambda trial: min(trial.seconds(_TRIAL_TOKENS) for _ in range(2)))


def _thread_counts() -> Sequence[int]:
    """1, 2, 3, 4, then doubling, up to all cores of this process."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    counts = {*range(1, min(cores, _FEW_CORES) + 1), cores}
    doubled = _FEW_CORES * 2
    while doubled < cores:
        counts.add(doubled)
        doubled *= 2
    return sorted(counts)


class _Timed:
    """A contender with its runs."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._first: list[float] = []
        self._further: list[float] = []

    def run(self, tokens: int, kept: bool) -> None:
        """One run to the first token, one to `tokens` more; their difference is what these cost."""
        first = self._contender.seconds(1)
        whole = self._contender.seconds(1 + tokens)
        if kept:
            self._first.append(first * 1000)
            self._further.append((whole - first) * 1000 / tokens)

    @property
    def token_ms(self) -> float:
        return statistics.median(self._further)

    def figures(self, shape: Shape, reference_ms: float) -> Figures:
        it = self._contender
        return Figures(
            shape.name,
            shape.task,
            it.engine,
            it.precision,
            it.threads,
            statistics.median(self._first),
            self.token_ms,
            reference_ms / self.token_ms,
        )
