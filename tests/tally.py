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
        peaks: File of tests → the most bytes that a worker held during them.
    """

    exactness: Exactness = field(default_factory=Exactness)
    lines: list[str] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)

    def add(self, other: dict[str, Any]) -> None:
        """Add what another process sent: its tally as a dict."""
        for name, count in other["exactness"].items():
            setattr(self.exactness, name, getattr(self.exactness, name) + count)
        self.lines += other["lines"]
        for file, held in other["peaks"].items():
            self.note_peak(held, file)

    def note_peak(self, held: int, file: str) -> None:
        """Note how much memory a process has held at most during a test of a file."""
        self.peaks[file] = max(held, self.peaks.get(file, 0))


_NAMED = 10  # files at most

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
    """Return the most memory that this process has held since the last call; 0 if the system has
    no figure.

    Not `ru_maxrss` of getrusage, which begins with that of the process that started this one.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii")
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins anew
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
    largest = sorted(tally.peaks.items(), key=lambda peak: -peak[1])
    if not largest or not largest[0][1]:
        return
    line = f"memory: a worker held {_gb(largest[0][1])} at most, in {largest[0][0]}"
    above = [f"{file} ({_gb(held)})" for file, held in largest if held > BYTES_OF_A_WORKER]
    if above:
        line += f"; {len(above)} files are above the {_gb(BYTES_OF_A_WORKER)} of tests/tally.py: "
        line += ", ".join(above[:_NAMED])
    terminalreporter.write_line(line)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
