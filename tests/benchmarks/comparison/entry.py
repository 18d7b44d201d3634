"""One library in the comparison: its processes, its best configurations, its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.backends.registry import Peer
from tests.benchmarks.comparison.process import PeerFailed, PeerMissing, PeerProcess
from tests.benchmarks.comparison.work import Task

__all__ = ["Entry"]


@dataclass
class Entry:
    """One library.

    Attributes:
        peer: The library.
        start: Starts a process of the library.
        missing: Why it cannot be measured; None if it can.
        tried: Task → configuration → value, of the short runs of the search.
        choice: (task, column of the table) → the configuration to measure.
        runs: (task, configuration) → measured values.
        spent: (task, configuration) → seconds spent on it.
        failed: Task → why it could not be run.
        refused: Why the last configuration that could not be loaded could not.
    """

    peer: Peer
    start: Callable[[], PeerProcess]
    missing: str | None = None
    tried: dict[Task, dict[Configuration, float]] = field(default_factory=dict)
    choice: dict[tuple[Task, str], Configuration] = field(default_factory=dict)
    runs: dict[tuple[Task, Configuration], list[float]] = field(default_factory=dict)
    spent: dict[tuple[Task, Configuration], float] = field(default_factory=dict)
    failed: dict[Task, str] = field(default_factory=dict)
    refused: str | None = None
    _first: PeerProcess | None = None
    _separate: dict[Configuration, PeerProcess] = field(default_factory=dict)

    @property
    def chosen(self) -> list[tuple[Task, Configuration]]:
        """The (task, configuration) pairs to run in each round, without duplicates."""
        return list(dict.fromkeys((task, at) for (task, _), at in self.choice.items()))

    def enter(self) -> None:
        """Start the first process; on failure set `missing`."""
        try:
            self._first = self.start()
        except PeerMissing:
            self.missing = f"{self.peer.package} is not installed"
        except PeerFailed as error:
            self.missing = str(error)

    def ask(self, call: str, at: Configuration | None = None, *arguments: object) -> Any:
        """Call a method of the worker in the process of a configuration. Raises PeerFailed."""
        process = self._first if at is None else self._separate.get(at, self._first)
        assert process is not None, "the process was started"
        return process.ask(call, *([] if at is None else [asdict(at)]), *arguments)

    def run(self, at: Configuration, task: Task) -> float | None:
        """One measurement; None, with the reason in `failed`, when it fails."""
        try:
            return float(self.ask("run", at, asdict(task)))
        except PeerFailed as error:
            self.failed[task] = str(error)
            return None

    def keep(self, configurations: Iterable[Configuration]) -> None:
        """Load these configurations and unload all others."""
        kept = list(dict.fromkeys(configurations))
        if not self.peer.separate:
            self.ask("keep", None, [asdict(at) for at in kept])
            return
        for at in set(self._separate) - set(kept):
            self._separate.pop(at).close()
        for at in kept:
            if at not in self._separate:
                self._separate[at] = self.start()
                self._separate[at].ask("keep", [asdict(at)])

    def close(self) -> None:
        """End all processes."""
        for process in (self._first, *self._separate.values()):
            if process is not None:
                process.close()
