"""`python -m tests.campaign`: all parts one after another, and a table.

--hours 8               time of all parts together; the default is ten minutes
--parts media server    these parts only
--seed 7                the first fresh seed; the fixed seeds are then left out
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.sandbox import REPOSITORY, sandbox
from tests.campaign.worker import PARTS

__all__ = ["main"]

_GRACE_S = 180.0  # beyond its time: a part's start, its last case, a failure that is made smaller


@dataclass
class Row:
    """The table's line for a part.

    Attributes:
        note: Why the part did not run, or did not run to its end; "" if it did.
        outcomes: Outcome → number of cases.
    """

    part: str
    seed: int
    tried: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0
    note: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, case: dict[str, Any]) -> None:
        """Count a case, which is a line of a worker."""
        if case["skipped"]:
            self.note = case["skipped"]
            return
        self.tried += 1
        self.failed += bool(case["failure"])
        self.slowest_s = max(self.slowest_s, case["seconds"])
        self.peak_bytes = max(self.peak_bytes, case["peak_bytes"])
        self.outcomes["failed" if case["failure"] else case["outcome"]] += 1


def main() -> int:
    """Run the parts; 1 if a case failed or a part broke off, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("--hours", type=float, default=1 / 6)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cases", type=int, help="of each part; default: as the time allows")
    given = parser.parse_args()
    seed = secrets.randbits(31) if given.seed is None else given.seed
    rows: list[Row] = []
    ends = time.monotonic() + 3600 * given.hours
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    try:
        with tempfile.TemporaryDirectory(prefix="edgeapp-campaign-") as folder:
            for i, part in enumerate(given.parts):
                rows.append(Row(part, seed))
                seconds = max(1.0, (ends - time.monotonic()) / (len(given.parts) - i))
                _run_part(rows[-1], seconds, given, Path(folder))
    except KeyboardInterrupt:
        interrupted = True
    _print_table(rows)
    if interrupted:
        print("interrupted: the table is of what was done", file=sys.stderr)
        return 130
    return int(any(row.failed or row.note.startswith("broke off") for row in rows))


def _run_part(row: Row, seconds: float, given: argparse.Namespace, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.campaign.worker", row.part, "--corpus", "--keep"]
    command += ["--seed", str(row.seed), "--seconds", str(seconds)]
    command += ["--fixed", "0"] if given.seed is not None else []
    command += ["--cases", str(given.cases)] if given.cases is not None else []
    log = folder / f"{row.part}.log"
    print(f"{row.part}: {seconds:.0f} s", file=sys.stderr)
    with log.open("wb") as errors:
        worker = subprocess.Popen(
            command, env=sandbox(folder / row.part), cwd=REPOSITORY, stdout=subprocess.PIPE,
            stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
    assert worker.stdout is not None
    previous = signal.signal(signal.SIGALRM, lambda *_: _kill(worker))
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_S)
    try:
        for line in worker.stdout:
            _take(row, json.loads(line))
        if worker.wait():
            last = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
            row.note = f"broke off, exit code {worker.returncode}: {last[:200]}"
            print(log.read_text("utf-8", "replace")[-3000:], file=sys.stderr)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if worker.poll() is None:
            worker.terminate()  # it deletes its folder and ends what it shares
            with suppress(subprocess.TimeoutExpired):
                worker.wait(10)
        _kill(worker)
        worker.wait()


def _take(row: Row, line: dict[str, Any]) -> None:
    if "seed" not in line:
        row.note = line["skipped"]
        return
    row.add(line)
    if line["failure"]:
        seed = "" if line["seed"] is None else f", seed {line['seed']}"
        kept = f", kept in {Path(line['kept']).relative_to(REPOSITORY)}" if line["kept"] else ""
        print(f"FAILED {row.part} {line['label']}{seed}{kept}", file=sys.stderr)
        print("    " + line["failure"].replace("\n", "\n    "), file=sys.stderr)


def _kill(worker: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)


def _print_table(rows: list[Row]) -> None:
    head = ("part", "tried", "failed", "slowest", "peak memory", "seed", "outcomes")
    lines = [head]
    for row in rows:
        outcomes = ", ".join(f"{n} {what}" for what, n in row.outcomes.most_common(4))
        note = "; ".join(filter(None, (outcomes, row.note)))
        lines.append((
            row.part, str(row.tried), str(row.failed), f"{row.slowest_s:.1f} s",
            f"{row.peak_bytes / 1e6:.0f} MB", str(row.seed), note,
        ))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print(" | ".join([*cells, line[-1]]).rstrip())


if __name__ == "__main__":
    sys.exit(main())
