"""The figures of live captions, for a terminal and for the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeapp.bench.captions import CaptionFigures, Lag
from edgeapp.bench.machine import machine
from edgeapp.bench.word_lag import Recording
from pipelines import Transcriber

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["conditions", "markdown", "table"]


def table(figures: Sequence[CaptionFigures]) -> Table:
    """For a terminal: a column for each policy."""
    from rich.table import Table

    heads, rows = _cells(figures)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        shown.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    return shown


def markdown(figures: Sequence[CaptionFigures]) -> str:
    """For the README."""
    heads, rows = _cells(figures)
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * len(figures)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def conditions(recording: Recording, transcriber: Transcriber, min_chunk_s: float) -> str:
    """What the figures depend on, in one paragraph."""
    model, engine = transcriber.model, transcriber.engine
    return (
        f"{recording.name}, {recording.seconds:.0f} s with {len(recording.words)} words, played "
        f"in real time to {model.folder.name} ({model.compute_type}) on "
        f"{'the GPU' if engine.device == 'cuda' else f'{engine.threads} CPU threads'}, an update "
        f"every {min_chunk_s:g} s of speech. Lags run from a word's true end, over the words that "
        "were recognised, to when it is first shown in its place, and to when it is final. "
        f"Decoding is timed on the same updates both ways. {machine('edgeapp', 'torch')}."
    )


def _cells(figures: Sequence[CaptionFigures]) -> tuple[list[str], list[list[str]]]:
    rows: list[tuple[str, list[str]]] = [
        ("word shown after, median (90 %)", [_lag(f.display) for f in figures]),
        ("word final after, median (90 %)", [_lag(f.committed) for f in figures]),
        ("updates a second of speech", [f"{f.updates:.1f}" for f in figures]),
        ("an update takes, median", [f"{f.update_ms:.0f} ms" for f in figures]),
        ("real-time factor", [f"{f.real_time_factor:.3f}" for f in figures]),
        ("draft tokens accepted", [f"{100 * f.accepted:.0f} %" for f in figures]),
        ("decoding an update, with its draft", [f"{f.drafted_ms:.1f} ms" for f in figures]),
        ("decoding it without", [f"{f.plain_ms:.1f} ms" for f in figures]),
        ("the draft saves, with the same tokens", [_saved(f) for f in figures]),
        ("words recognised", [f"{f.recognised} of {f.words}" for f in figures]),
        ("word error rate", [f"{100 * f.wrong / f.words:.1f} %" for f in figures]),
    ]
    return ["", *(f.policy for f in figures)], [[name, *cells] for name, cells in rows]


def _lag(lag: Lag) -> str:
    return f"{lag.median:.2f} s ({lag.late:.2f} s)"


def _saved(figures: CaptionFigures) -> str:
    times = figures.plain_ms / figures.drafted_ms
    return f"{times:.1f} × (same in {100 * figures.same:.0f} %)"
