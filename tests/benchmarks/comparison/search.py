"""Searches the best configuration of a library for each task, by short runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.backends.registry import OURS, Column
from tests.benchmarks.comparison.entry import Entry
from tests.benchmarks.comparison.process import PeerFailed
from tests.benchmarks.comparison.work import Task

__all__ = ["search", "thread_counts"]

_REPEATS = 3
# Seconds after which a short run is not repeated; more for fast libraries.
_PROBE_S, _PROBE_OF_THE_QUICK_S = 0.3, 1.0
_TOKENS = 16
_LINES, _LINES_OF_THE_QUICK = 128, 512
# The best few at a part of the lines are run with all lines, so often: with few lines, several
# processes spend much of their time on their last batch.
_FINALISTS, _FINALS = 3, 2
_FINALS_S = 30.0


def thread_counts() -> list[int]:
    """1, 2, 3, 4, then doubling, up to all cores of this process."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return sorted({count for count in (1, 2, 3, 4, 8, 16, 32, 64) if count < cores} | {cores})


def search(entry: Entry, tasks: Sequence[Task], counts: Sequence[int]) -> None:
    """Choose the configurations of all tasks and columns, and load them.

    Each dtype is tried with half and with all of the threads. For fast libraries the best are
    also tried with one step more and fewer threads, and lines with other batch sizes.
    """
    probes = list(dict.fromkeys(probe for task in tasks for _, probe in _parts(entry, task)))
    half = (len(counts) - 1) // 2
    for dtype in entry.ask("dtypes"):
        for count in sorted({counts[half], counts[-1]}):
            _try(entry, Configuration(dtype, count), probes)
    _choose(entry, tasks)
    for at in list(dict.fromkeys(entry.choice.values())) if entry.peer.quick else []:
        place = counts.index(at.threads)
        for count in counts[max(0, place - 1) : place + 2]:
            _try(entry, replace(at, threads=count), probes)
    _choose(entry, tasks)
    lines = [probe for probe in probes if probe.kind == "lines"]
    for at in {at for (task, _), at in entry.choice.items() if task.kind == "lines"}:
        for cut in entry.ask("batch_configurations", at, counts[-1]):
            _try(entry, Configuration(**cut), lines)
    _choose(entry, tasks)
    for task in tasks:
        if task.kind == "lines" and entry.peer.quick:
            _finals(entry, task)
    entry.keep(at for _, at in entry.chosen)


def _parts(entry: Entry, task: Task) -> list[tuple[float, Task]]:
    """The short runs for a task, as (weight, run): its cost is their weighted sum."""
    encode, step = Task("encode", 1, 1), Task("step", min(task.batch, 8), _TOKENS)
    if task.kind == "lines":
        most = _LINES_OF_THE_QUICK if entry.peer.quick else _LINES
        return [(-1.0, replace(task, batch=min(task.batch, most)))]  # tokens a second
    if task.kind == "encode":
        return [(1.0, encode)]
    if task.kind in ("window", "windows"):
        if "step" not in entry.peer.work:
            return [(1.0, replace(task, tokens=_TOKENS))]
        return [(task.batch, encode), (task.tokens, step)]
    return [(1.0, step)]


def _choose(entry: Entry, tasks: Sequence[Task]) -> None:
    for task in tasks:
        parts = _parts(entry, task)
        failed = [entry.failed[probe] for _, probe in parts if probe in entry.failed]
        if failed:
            entry.failed[task] = failed[0]
            continue
        tried = [entry.tried.get(probe, {}) for _, probe in parts]
        costs = {
            at: sum(weight * of[at] for (weight, _), of in zip(parts, tried, strict=True))
            for at in tried[0]
            if all(at in of for of in tried)
        }
        for column in entry.peer.columns:
            if task.kind == "growth" and column.name != OURS:
                continue
            able = _able(costs, column)
            if able:
                entry.choice[task, column.name] = min(able, key=costs.__getitem__)


def _finals(entry: Entry, task: Task) -> None:
    """Choose for lines again, by full runs of the best few configurations."""
    [(_, probe)] = _parts(entry, task)
    tried = entry.tried.get(probe, {})
    for column in entry.peer.columns:
        best = sorted(_able(tried, column), key=tried.__getitem__, reverse=True)[:_FINALISTS]
        found: dict[Configuration, float] = {}
        begun = time.perf_counter()
        entry.keep(best)
        for _ in range(_FINALS):
            for at in best:
                if at not in found or time.perf_counter() < begun + _FINALS_S:
                    found[at] = max(found.get(at, 0.0), entry.run(at, task) or 0.0)
        if found and task not in entry.failed:
            entry.choice[task, column.name] = max(found, key=found.__getitem__)


def _able(configurations: Iterable[Configuration], column: Column) -> list[Configuration]:
    return [at for at in configurations if not column.dtypes or at.dtype in column.dtypes]


def _try(entry: Entry, at: Configuration, probes: Sequence[Task]) -> None:
    left = [p for p in probes if p not in entry.failed and at not in entry.tried.get(p, {})]
    if not left:
        return
    try:
        entry.keep([at])
    except PeerFailed as error:  # for example a dtype that the device lacks
        entry.refused = str(error)
        return
    for probe in left:
        until = time.perf_counter() + (_PROBE_OF_THE_QUICK_S if entry.peer.quick else _PROBE_S)
        found = [entry.run(at, probe)]
        while len(found) < _REPEATS and time.perf_counter() < until:
            found.append(entry.run(at, probe))
        values = [value for value in found if value is not None]
        if probe not in entry.failed:
            # The best run: the others were delayed by other programs.
            value = max(values) if probe.unit == "tokens/s" else min(values)
            entry.tried.setdefault(probe, {})[at] = value
