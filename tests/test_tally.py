"""The counts of all workers stand in one summary."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from edgeapp.process_memory import memory_in_use
from tests import tally


class Process:
    """A pytest process, of which the tally sees the config."""

    def __init__(self) -> None:
        self.stash, self.workeroutput = pytest.Stash(), {}
        self.workerinput = {"workerid": "gw0"}
        tally.pytest_configure(self)  # type: ignore[arg-type]

    @property
    def counts(self) -> tally.Tally:
        return tally.tally.__wrapped__(self)  # the function behind the fixture


def summary(process: Process) -> list[str]:
    lines: list[str] = []
    reporter: Any = SimpleNamespace(config=process, write_line=lines.append)
    tally.pytest_terminal_summary(reporter)
    return lines


def test_workers_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    main = Process()
    for tokens, line in ((5, "b"), (7, "a")):
        worker = Process()
        worker.counts.exactness.models += 1
        worker.counts.exactness.tokens += tokens
        worker.counts.lines.append(line)
        for file, held in ((f"tests/test_{line}.py", tokens), ("tests/test_later.py", 1)):
            monkeypatch.setattr(tally, "_peak_bytes", lambda held=held: held << 27)
            test: Any = SimpleNamespace(config=worker, nodeid=f"{file}::test_x")
            tally.pytest_runtest_teardown(test)
        tally.pytest_sessionfinish(SimpleNamespace(config=worker))  # type: ignore[arg-type]
        sent = json.loads(json.dumps(worker.workeroutput))
        tally.pytest_testnodedown(SimpleNamespace(config=main, workeroutput=sent))
    crashed = SimpleNamespace(config=main)
    tally.pytest_testnodedown(crashed)
    assert summary(main) == [
        "exactness: 2 models, 0 prompts, 12 tokens compared, 0 ties",
        "a",
        "b",
        "memory: a worker held 0.9 GB at most, in tests/test_a.py",
    ]


def test_a_large_worker_is_said() -> None:
    main = Process()
    for file, held in (("a", 1.7e9), ("b", 2e9), ("b", 1e9), ("c", 1e9)):
        main.counts.note_peak(int(held), f"tests/test_{file}.py")
    assert summary(main) == [
        "memory: a worker held 2.0 GB at most, in tests/test_b.py; 2 files are above the 1.6 GB of "
        "tests/tally.py: tests/test_b.py (2.0 GB), tests/test_a.py (1.7 GB)"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="the figure is Linux'")
def test_the_peak_is_that_since_the_last_test() -> None:
    size = 1 << 28
    assert bytearray(size)  # is gone at once
    held = memory_in_use()
    assert tally._peak_bytes() >= held + size // 2
    assert held - size // 4 < tally._peak_bytes() < held + size // 2


def test_what_was_not_compared_is_not_mentioned() -> None:
    assert summary(Process()) == []
