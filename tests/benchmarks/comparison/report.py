"""The results as text for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, zip_longest

from edgeapp.bench.machine import machine
from tests.benchmarks.comparison.backends.registry import OURS, PEERS
from tests.benchmarks.comparison.figures import Figure
from tests.benchmarks.comparison.quality import TARGET, Cost
from tests.benchmarks.comparison.race import Results
from tests.benchmarks.comparison.targets import better, target_of, target_rows

__all__ = ["conditions", "markdown", "number", "text", "to_json"]

_QUALITY_COLUMNS = ("model", "precision", "quality", "worse by", "", "over")
_COLUMNS = ("", "median", "min–max", "dtype × threads", "memory limit", "EdgeApp is")


def text(results: Results, costs: Sequence[Cost]) -> str:
    """Text for a terminal: one block per task, one line per library."""
    lines = []
    for rows in _blocks(results.figures):
        verdicts = target_rows(rows, bool(results.gpu))
        lines.append((f"{rows[0].shape}, {rows[0].title}",))
        for row in rows:
            cells = _cells(row) if row.runs else (row.missing or "",)
            verdict = verdicts.get(row.peer)
            lines.append((f"  {row.peer}", *cells, *([verdict] if verdict else [])))
    parts = [_aligned([_COLUMNS, *lines]), conditions(results)] if lines else []
    if costs:
        parts.append(_aligned([_QUALITY_COLUMNS, *map(_cost_cells, costs)]))
    return "\n\n".join(parts)


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows with aligned columns; a row of one or two cells is a title or a remark."""
    whole = [row for row in rows if len(row) > 2]
    widths = [max(map(len, column)) for column in zip_longest(*whole, fillvalue="")]
    lines = []
    for row in rows:
        if len(row) > 1:
            row = (
                row[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=False)),
            )
        lines.append("  ".join(row).rstrip())
    return "\n".join(lines)


def markdown(results: Results, costs: Sequence[Cost]) -> str:
    """Markdown: one table of figures, one of quality."""
    parts = [_race_markdown(results), conditions(results)] if results.figures else []
    if costs:
        rows = [_QUALITY_COLUMNS, ("---",) * len(_QUALITY_COLUMNS), *map(_cost_cells, costs)]
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
    return "\n\n".join(parts)


def _race_markdown(results: Results) -> str:
    """One row per task, one column per library."""
    peers = [column.name for peer in PEERS for column in peer.columns]
    shown = [name for name in peers if any(each.peer == name for each in results.figures)]
    lines = [
        "| " + " | ".join(("work", *shown, "EdgeApp against them")) + " |",
        "|---|" + "--:|" * len(shown) + "---|",
    ]
    for rows in _blocks(results.figures):
        by_name = {row.peer: row for row in rows}
        cells = [_cell(by_name.get(name)) for name in shown]
        verdicts = target_rows(rows, bool(results.gpu))
        aimed = [
            f"{name}: {verdicts[name]}"
            for name in shown
            if name in verdicts and (name == OURS or "aim" in verdicts[name])
        ]
        work = f"{rows[0].shape}, {rows[0].title}"
        lines.append("| " + " | ".join((work, *cells, "; ".join(aimed))) + " |")
    return "\n".join(lines)


def conditions(results: Results) -> str:
    """Machine, versions and method, in one paragraph."""
    kernels = {each.why for each in results.figures if each.why}
    where = [machine("edgeapp", *_installed()), *([results.gpu] if results.gpu else [])]
    return (
        f"{', '.join(where)}; memory read at {results.bytes_per_s / 1e9:.0f} GB/s. Random"
        " weights, the same for all libraries; greedy, the same number of tokens; each library in"
        " its best configuration for each task (dtype × threads, found by short runs), in its own"
        " process, in turn; medians, with minimum and maximum. Memory limit: the time to read the"
        " weights and the cache that a step needs."
        + "".join(f"\nEdgeApp's kernels: {why}" for why in sorted(kernels))
    )


def to_json(results: Results, costs: Sequence[Cost]) -> str:
    """One JSON object: the machine, each figure with runs, ratio and target, and quality."""
    figures = []
    for rows in _blocks(results.figures):
        ours = next((row for row in rows if row.peer == OURS and row.runs), None)
        for row in rows:
            record = asdict(row)
            if row.runs:
                record["median"] = row.median
            if row.runs and ours is not None and row is not ours:
                record["edgeapp_is"] = better(row.unit, ours.median, row.median)
                record["aim"] = target_of(row.shape, row.work, row.peer, bool(results.gpu))
            figures.append(record)
    return json.dumps(
        {
            "machine": machine("edgeapp", *_installed()),
            "gpu": results.gpu,
            "bytes_per_s": results.bytes_per_s,
            "figures": figures,
            "quality": [asdict(cost) for cost in costs],
        },
        ensure_ascii=False,
    )


def _cost_cells(cost: Cost) -> tuple[str, ...]:
    exact = cost.compute_type == "float32"
    return (
        cost.model,
        cost.compute_type,
        f"{cost.value:.2f} {cost.measure}",
        "" if exact else f"{cost.worse:+.2f}",
        "" if exact else f"aim {TARGET}: {'hit' if cost.worse <= TARGET else 'missed'}",
        cost.over,
    )


def number(value: float) -> str:
    """A number with 0 decimals from 100 on, 1 from 20 on, else 2."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def _blocks(figures: Sequence[Figure]) -> Iterator[list[Figure]]:
    for _, block in groupby(figures, key=lambda each: (each.shape, each.work)):
        yield list(block)


def _cells(figure: Figure) -> tuple[str, ...]:
    low, high = figure.spread
    return (
        f"{number(figure.median)} {figure.unit}",
        f"{number(low)}–{number(high)}" if len(figure.runs) > 1 else "",
        str(figure.configuration),
        "" if figure.limit_ms is None else f"{number(figure.limit_ms)} ms",
    )


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if not figure.runs:
        return figure.missing or ""
    median, spread, configuration, limit = _cells(figure)
    notes = [spread, configuration, f"limit {limit}" if limit else ""]
    return f"{median} ({'; '.join(note for note in notes if note)})"


def _installed() -> list[str]:
    from importlib.util import find_spec

    packages = (
        "torch", "transformers", "openai-whisper", "ctranslate2", "faster-whisper", "pywhispercpp"
    )  # fmt: skip
    modules = {"openai-whisper": "whisper", "faster-whisper": "faster_whisper"}
    return [name for name in packages if find_spec(modules.get(name, name))]
