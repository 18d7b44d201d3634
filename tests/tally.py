"""A pytest plugin: what the tests have counted, over all workers, in the terminal summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Exactness, is_worker

__all__ = ["BYTES_OF_A_WORKER", "Tally"]

BYTES_OF_A_WORKER = 3 << 29  # 1.5 GiB: a laptop with 8 GB runs the tests


@dataclass
class Tally:
    """What a process has counted.

    Attributes:
        exactness: Sums.
        lines: Further lines of the summary.
        peak_bytes: The most memory that a worker held at a time.
        peak_file: The file of the test after which it held that first.
    """

    exactness: Exactness = field(default_factory=Exactness)
    lines: list[str] = field(default_factory=list)
    peak_bytes: int = 0
    peak_file: str = ""

    def add(self, other: dict[str, Any]) -> None:
        """Add what another process sent: its tally as a dict."""
        for name, count in other["exactness"].items():
            setattr(self.exactness, name, getattr(self.exactness, name) + count)
        self.lines += other["lines"]
        self.note_peak(other["peak_bytes"], other["peak_file"])

    def note_peak(self, held: int, file: str) -> None:
        """Note how much memory a process has held at most, after a test of a file."""
        if held > self.peak_bytes:
            self.peak_bytes, self.peak_file = held, file


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


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note in a worker which file's tests need the most memory."""
    if is_worker(item.config):
        item.config.stash[_TALLY].note_peak(_peak_bytes(), item.nodeid.partition("::")[0])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its tally to the process that started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tally"] = asdict(session.config.stash[_TALLY])


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
        line = (
            f"memory: a worker held {tally.peak_bytes / 1e9:.1f} GB at most, in {tally.peak_file}"
        )
        if tally.peak_bytes > BYTES_OF_A_WORKER:
            line += f", more than the {BYTES_OF_A_WORKER / 1e9:.1f} GB of tests/tally.py"
        terminalreporter.write_line(line)
