"""Compares the engine in every precision with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from edgeapp.bench.machine import machine
from tests.benchmarks.comparison.backends.registry import HF, HF_EXACT, PEERS, Column, Peer
from tests.benchmarks.comparison.figures import Figure
from tests.benchmarks.comparison.report import number
from tests.benchmarks.comparison.shapes import SHAPES, Shape
from tests.benchmarks.comparison.work import Task

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["ENTRANTS", "conditions", "markdown", "table", "work"]

_PRECISIONS = ("auto", "float32", "bfloat16", "int8")
_COLUMNS = ("model", "engine", "dtype × threads", "first token", "each further", "decoding")

ENTRANTS = (
    *(peer for peer in PEERS if HF in {column.name for column in peer.columns}),
    Peer(
        tuple(Column(f"EdgeApp, {name}", (name,)) for name in _PRECISIONS),
        "ours:OursInEveryPrecision",
        "edgeapp",
        ("step", "encode"),
    ),
)


def work(tokens: int) -> dict[Shape, list[Task]]:
    """The first token and `tokens` more, for the smallest shape of each kind."""
    tasks = [Task("encode", 1, 1), Task("step", 1, tokens)]
    return {shape: tasks for shape in SHAPES if not shape.large}


def conditions(tokens: int, rounds: int) -> str:
    """Machine, versions and method, in one paragraph."""
    return (
        f"{machine('edgeapp', 'torch', 'transformers')}. "
        f"Random weights, batch 1, greedy, {tokens} further tokens, medians of up to {rounds} runs "
        "taken in turn, each library with its best number of threads. First token: from 30 s of "
        "audio or 30 tokens of text, through the encoder, to the first token. Decoding: "
        "speed-up over transformers in float32."
    )


def table(figures: Sequence[Figure]) -> Table:
    """The table for a terminal."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(_COLUMNS):
        shown.add_column(column, justify="left" if place < 3 else "right", no_wrap=True)
    for row in _rows(figures):
        shown.add_row(*row)
    return shown


def markdown(figures: Sequence[Figure]) -> str:
    """The table in Markdown."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---|---|---|" + "--:|" * 3]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in _rows(figures)])


def _rows(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    rows = []
    for shape, block in groupby(figures, key=lambda each: each.shape):
        of = {(each.peer, each.work): each for each in block}
        names = list(dict.fromkeys(peer for peer, _ in of))
        exact = of[HF_EXACT, "step 1"]
        for place, name in enumerate(names):
            first, step = of[name, "encode"], of[name, "step 1"]
            if not (first.runs and step.runs):
                rows.append((shape if not place else "", name, step.missing or "", "", "", ""))
                continue
            rows.append(
                (
                    shape if not place else "",
                    name,
                    str(step.configuration),
                    f"{number(first.median)} ms",
                    f"{number(step.median)} ms",
                    f"{exact.median / step.median:.1f} ×" if exact.runs else "",
                )
            )
    return rows
