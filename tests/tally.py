"""A pytest plugin: what the tests have counted, over all workers, in the terminal summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from tests.conftest import Exactness

__all__ = ["Tally"]


@dataclass
class Tally:
    """What a process has counted.

    Attributes:
        exactness: Sums.
        lines: Further lines of the summary.
    """

    exactness: Exactness = field(default_factory=Exactness)
    lines: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        """Add what another process sent: its tally as a dict."""
        for name, count in other["exactness"].items():
            setattr(self.exactness, name, getattr(self.exactness, name) + count)
        self.lines += other["lines"]


_TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """The tally of this process."""
    return pytestconfig.stash[_TALLY]


@pytest.fixture(scope="session")
def exactness(tally: Tally) -> Exactness:
    """The tally of comparisons with transformers."""
    return tally.exactness


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its tally to the process that started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tally"] = asdict(session.config.stash[_TALLY])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended. One that crashed has sent nothing."""
    sent = getattr(node, "workeroutput", {}).get("tally")
    if sent is not None:
        node.config.stash[_TALLY].add(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tally = terminalreporter.config.stash[_TALLY]
    done = tally.exactness
    if done.tokens:
        terminalreporter.write_line(
            f"exactness: {done.models} models, {done.prompts} prompts, "
            f"{done.tokens} tokens compared, {done.ties} ties"
        )
    for line in sorted(tally.lines):
        terminalreporter.write_line(line)
