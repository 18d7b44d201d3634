"""A pytest plugin: what the tests have counted, over all workers, in the terminal summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Exactness

__all__ = ["BYTES_OF_A_WORKER", "Tally"]

BYTES_OF_A_WORKER = 3 << 29  # 1.5 GiB: a laptop with 8 GB runs the tests


@dataclass
class Tally:
    """What a process has counted.

    Attributes:
        exactness: Sums.
        lines: Further lines of the summary.
        peak_bytes: The most memory that a worker held at a time.
    """

    exactness: Exactness = field(default_factory=Exactness)
    lines: list[str] = field(default_factory=list)
    peak_bytes: int = 0

    def add(self, other: dict[str, Any]) -> None:
        """Add what another process sent: its tally as a dict."""
        for name, count in other["exactness"].items():
            setattr(self.exactness, name, getattr(self.exactness, name) + count)
        self.lines += other["lines"]
        self.peak_bytes = max(self.peak_bytes, other["peak_bytes"])


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
        tally = session.config.stash[_TALLY]
        tally.peak_bytes = _peak_bytes()
        output["tally"] = asdict(tally)


def _peak_bytes() -> int:
    """Return the most memory that this process has held at a time; 0 if the system has no figure.

    Not `ru_maxrss` of getrusage, which begins with that of the process that started this one.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0
    )


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
    if tally.peak_bytes:
        line = f"memory: a worker held {tally.peak_bytes / 1e9:.1f} GB at most"
        if tally.peak_bytes > BYTES_OF_A_WORKER:
            line += f", more than the {BYTES_OF_A_WORKER / 1e9:.1f} GB of tests/tally.py"
        terminalreporter.write_line(line)
