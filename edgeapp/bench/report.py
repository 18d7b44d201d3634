"""The result of a comparison, for a terminal and for the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeapp.bench.comparison import Figures
from edgeapp.bench.machine import machine

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["conditions", "markdown", "table"]

_COLUMNS = ("model", "engine", "precision", "threads", "first token", "each further", "decoding")


def conditions(tokens: int, rounds: int) -> str:
    """What the figures depend on, in one paragraph."""
    return (
        f"{machine('edgeapp', 'torch', 'transformers')}. "
        f"Random weights, batch 1, greedy, {tokens} further tokens, medians of {rounds} runs "
        "taken in turn. First token: from the source, through the encoder, to the first choice. "
        "Decoding: against transformers in float32."
    )


def table(figures: Sequence[Figures]) -> Table:
    """For a terminal."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(_COLUMNS):
        shown.add_column(column, justify="left" if number < 3 else "right", no_wrap=True)
    for number, each in enumerate(figures):
        first = number == 0 or figures[number - 1].shape != each.shape
        shown.add_row(each.shape if first else "", *_cells(each), end_section=False)
    return shown


def markdown(figures: Sequence[Figures]) -> str:
    """For the README."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---|---|---|" + "--:|" * 4]
    for number, each in enumerate(figures):
        first = number == 0 or figures[number - 1].shape != each.shape
        name = f"{each.shape}, {each.task}" if first else ""
        lines.append("| " + " | ".join((name, *_cells(each))) + " |")
    return "\n".join(lines)


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        figures.engine,
        figures.precision,
        str(figures.threads),
        f"{figures.first_ms:.0f} ms",
        f"{figures.token_ms:.2f} ms",
        f"{figures.faster:.1f} ×",
    )
