"""The figures of live captions as a table for a terminal and in Markdown."""

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
    """A table for a terminal: one column per policy."""
    from rich.table import Table

    heads, rows = _cells(figures)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(figures: Sequence[CaptionFigures]) -> str:
    """The same table in Markdown."""
    heads, rows = _cells(figures)
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * len(figures)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def conditions(recording: Recording, transcriber: Transcriber, min_chunk_s: float) -> str:
    """Recording, model, machine and definitions of the figures, in one paragraph."""
    model, engine = transcriber.model, transcriber.engine
    return (
        f"{recording.name}, {recording.seconds:.0f} s with {len(recording.words)} words, played "
        f"in real time to {model.folder.name} ({model.compute_type}) on "
        f"{'the GPU' if engine.device == 'cuda' else f'{engine.threads} CPU threads'}, an update "
        f"every {min_chunk_s:g} s of speech. Lags are measured on correctly recognized words, from "
        "the end of the word until it is first shown in its place, and until it is final. "
        "Decoding is timed on the same updates with and without drafts. "
        f"{machine('edgeapp', 'torch')}."
    )


def _cells(figures: Sequence[CaptionFigures]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and the rows."""
    rows: list[tuple[str, list[str]]] = [
        ("lag until shown, median (90 %)", [_lag(f.display) for f in figures]),
        ("lag until final, median (90 %)", [_lag(f.committed) for f in figures]),
        ("updates per second of speech", [f"{f.updates:.1f}" for f in figures]),
        ("time per update, median", [f"{f.update_ms:.0f} ms" for f in figures]),
        ("real-time factor", [f"{f.real_time_factor:.3f}" for f in figures]),
        ("draft tokens accepted", [f"{100 * f.accepted:.0f} %" for f in figures]),
        ("decoding per update, with draft", [f"{f.drafted_ms:.1f} ms" for f in figures]),
        ("decoding per update, without draft", [f"{f.plain_ms:.1f} ms" for f in figures]),
        ("speed-up by the draft", [_speed_up(f) for f in figures]),
        ("words recognized", [f"{f.recognized} of {f.words}" for f in figures]),
        ("word error rate", [f"{100 * f.wrong / f.words:.1f} %" for f in figures]),
    ]
    return ["", *(f.policy for f in figures)], [[name, *cells] for name, cells in rows]


def _lag(lag: Lag) -> str:
    return f"{lag.median:.2f} s ({lag.late:.2f} s)"


def _speed_up(figures: CaptionFigures) -> str:
    ratio = figures.plain_ms / figures.drafted_ms
    return f"{ratio:.1f} × (same tokens in {100 * figures.same:.0f} %)"
