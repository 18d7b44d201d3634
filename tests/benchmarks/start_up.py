"""Time from the start of `edgeapp transcribe` to its first word, against `import torch` alone.

    .venv/bin/python -m tests.benchmarks.start_up

Runs both in turn, on a pseudo-terminal, where `edgeapp transcribe` shows words as they are decoded.
"""

from __future__ import annotations

import os
import pty
import re
import statistics
import sys
import time

from pipelines.hub import assets_folder

RUNS = 5
QUESTION = str(assets_folder() / "samples" / "question.flac")
TORCH = [sys.executable, "-c", "import torch; print('done')"]
TRANSCRIBE = [sys.executable, "-m", "edgeapp", "transcribe", QUESTION, "-m", "demo"]
# Terminal output that is no word: colours, cursor moves, line ends.
NO_WORD = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\s")


def run(command: list[str]) -> tuple[float, float]:
    """Seconds until the first word, and the process's largest resident size in MB."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command[0], command)
    first = None
    while True:
        try:
            output = os.read(terminal, 4096)
        except OSError:  # on Linux: the other side has closed the terminal
            break
        if first is None and NO_WORD.sub(b"", output):
            first = time.perf_counter() - began
        if not output:
            break
    os.close(terminal)
    _, _, usage = os.wait4(child, 0)
    assert first is not None
    return first, usage.ru_maxrss / 1024


def main() -> None:
    alone, whole = [], []
    for _ in range(RUNS):
        alone.append(run(TORCH))
        whole.append(run(TRANSCRIBE))
    print(f"median of {RUNS} runs          first word    largest size")
    rows = [("import torch alone", alone), ("edgeapp transcribe", whole)]
    for name, runs in rows:
        seconds, size = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name:22}  {seconds:8.2f} s  {size:10.0f} MB")
    more = [statistics.median(c) for c in zip(*whole, strict=True)]
    less = [statistics.median(c) for c in zip(*alone, strict=True)]
    print(f"{'difference':22}  {more[0] - less[0]:8.2f} s  {more[1] - less[1]:10.0f} MB")


if __name__ == "__main__":
    main()
