"""A rival in the race: its process, what it runs best with, and its results."""

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
    """start: makes a process of this rival. missing: why it cannot take part, else None.

    tried: the short runs of the search. choice: by task and column of the table, what to run.
    runs, spent: what came out, and the seconds it took. failed: what could not be run, and why.
    refused: why the last configuration that could not be loaded could not.
    """

    rival: Peer
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
        """What is run in each round: once for two columns that choose alike."""
        return list(dict.fromkeys((task, at) for (task, _), at in self.choice.items()))

    def enter(self) -> None:
        """Start, or note why that is impossible."""
        try:
            self._first = self.start()
        except PeerMissing:
            self.missing = f"{self.rival.package} is not installed"
        except PeerFailed as error:
            self.missing = str(error)

    def ask(self, call: str, at: Configuration | None = None, *arguments: object) -> Any:
        """Have the process of a configuration do something. Raises PeerFailed."""
        process = self._first if at is None else self._separate.get(at, self._first)
        assert process is not None, "it takes part"
        return process.ask(call, *([] if at is None else [asdict(at)]), *arguments)

    def run(self, at: Configuration, task: Task) -> float | None:
        """One measurement; None, and a note, when it fails."""
        try:
            return float(self.ask("run", at, asdict(task)))
        except PeerFailed as error:
            self.failed[task] = str(error)
            return None

    def keep(self, configurations: Iterable[Configuration]) -> None:
        """Have these in memory, and no others."""
        kept = list(dict.fromkeys(configurations))
        if not self.rival.separate:
            self.ask("keep", None, [asdict(at) for at in kept])
            return
        for at in set(self._separate) - set(kept):
            self._separate.pop(at).close()
        for at in kept:
            if at not in self._separate:
                self._separate[at] = self.start()
                self._separate[at].ask("keep", [asdict(at)])

    def close(self) -> None:
        """End its processes."""
        for process in (self._first, *self._separate.values()):
            if process is not None:
                process.close()
