"""The measurement: in each round all libraries run once, each in its best configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tests.benchmarks.comparison.backends.registry import OURS, Column, Peer
from tests.benchmarks.comparison.entry import Entry
from tests.benchmarks.comparison.figures import Figure
from tests.benchmarks.comparison.process import PeerFailed, PeerProcess
from tests.benchmarks.comparison.search import search, thread_counts
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import Task

__all__ = ["Said", "measure"]

Said = Callable[[str], None]

# The idle threads of the last library spin for a while before they sleep.
_PAUSE_S = 0.2
# Seconds per task and configuration, after which it is not repeated. Fast libraries, which are
# close to each other, get more.
_ENOUGH_S = 2.0
_ENOUGH_OF_THE_QUICK_S = 4.0
_ENOUGH_OF_LINES_S = 30.0
_WARM_S = 2.0  # a longer first run counts, although it is the warm-up


def measure(
    shape: Shape,
    folder: Path,
    tasks: Sequence[Task],
    peers: Sequence[Peer],
    *,
    rounds: int,
    bytes_per_s: float,
    device: str = "cpu",
    threads: Sequence[int] | None = None,
    said: Said,
) -> list[Figure]:
    """The figures of all libraries for the tasks of one shape.

    Args:
        shape: The model.
        folder: Folder with its weights.
        tasks: What to measure.
        peers: The libraries.
        rounds: Maximum number of runs.
        bytes_per_s: Memory bandwidth.
        device: "cpu" or "cuda".
        threads: Thread counts to try; None tries all useful ones.
        said: Receives progress messages.
    """
    counts = threads or thread_counts()
    if device != "cpu":  # threads only launch the work of the GPU
        counts = counts[-1:]
    with ExitStack() as stack:
        entries: list[Entry] = []
        for peer in peers:
            own = [task for task in tasks if peer.takes(shape, task)]
            if not own:
                continue
            said(f"{shape.name}: {peer.columns[-1].name} searches its best configuration")
            start = partial(PeerProcess, "race", shape, folder, device, peer.place)
            entries.append(Entry(peer, start))
            stack.callback(entries[-1].close)
            entries[-1].enter()
            if not entries[-1].missing:
                _search(entries[-1], own, counts)
        present = [entry for entry in entries if not entry.missing]
        for number in range(rounds + 1):
            said(
                f"{shape.name}: round {number} of {rounds}" if number else f"{shape.name}: warm-up"
            )
            for entry in present:
                time.sleep(_PAUSE_S)
                _turn(entry, number)
        for entry in present:
            _measure_memory(entry, shape, folder, device, said)
        return [
            _figure(shape, task, entry, column, bytes_per_s)
            for task in tasks
            for entry in entries
            if entry.peer.takes(shape, task)
            for column in entry.peer.columns
            if task.kind != "growth" or column.name == OURS
        ]


def _search(entry: Entry, tasks: Sequence[Task], counts: Sequence[int]) -> None:
    try:
        search(entry, tasks, counts)
    except PeerFailed as error:
        entry.missing = str(error)
    if not entry.choice and not entry.failed:
        entry.missing = entry.missing or entry.refused


def _turn(entry: Entry, number: int) -> None:
    """Run each task once. Round 0 is a warm-up, and counts only where it takes long."""
    for task, at in entry.chosen:
        enough = _ENOUGH_OF_THE_QUICK_S if entry.peer.quick else _ENOUGH_S
        if task.kind == "lines" and entry.peer.quick:
            enough = _ENOUGH_OF_LINES_S
        runs = entry.runs.setdefault((task, at), [])
        spent = entry.spent.get((task, at), 0.0)
        if task.kind == "memory" or task in entry.failed or (runs and spent > enough):
            continue
        began = time.perf_counter()
        value = entry.run(at, task)
        spent += time.perf_counter() - began
        entry.spent[task, at] = spent
        if value is not None and (number > 0 or spent > _WARM_S):
            runs.append(value)


def _measure_memory(entry: Entry, shape: Shape, folder: Path, device: str, said: Said) -> None:
    """Measure peak memory, in a new process per configuration."""
    for task, at in entry.chosen:
        if task.kind != "memory":
            continue
        said(f"{shape.name}: peak memory of {entry.peer.columns[-1].name}, {at}")
        peer = entry.peer
        try:
            with PeerProcess("peak", shape, folder, device, peer.base, peer.place) as process:
                value = float(process.ask("measure", asdict(at), asdict(task)))
        except PeerFailed as error:
            entry.failed[task] = str(error)
        else:
            entry.runs[task, at] = [value]


def _figure(shape: Shape, task: Task, entry: Entry, column: Column, bytes_per_s: float) -> Figure:
    figure = Figure(shape.name, task.key, task.title(), column.name, task.unit)
    at = entry.choice.get((task, column.name))
    runs = entry.runs.get((task, at)) if at else None
    if at is None or not runs:
        missing = entry.missing or entry.failed.get(task, "could not be run")
        return replace(figure, missing=missing)
    limit = None
    if task.kind == "step" and bytes_per_s:
        read = entry.ask("limit_bytes", at, task.batch)
        limit = 1000 * read / bytes_per_s
    why = entry.ask("explain", at)
    return replace(figure, runs=tuple(runs), configuration=at, limit_ms=limit, why=why)
