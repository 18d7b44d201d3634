"""Ends processes while daemon threads compute.

    python -m tests.engine.process_exits COUNT [KIND …]

Each process is a fork of this one, which has imported the library and computed nothing, so that a
process takes a second. A kind is what the daemon threads do; each ending comes in turn.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import torch

from pipelines import SAMPLE_RATE, Transcriber, Translator, load_audio
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.loader import load_kernels

QUESTION = Path(__file__).parents[2] / "assets" / "samples" / "question.flac"
_LONGEST_S = 120.0


def teams() -> Callable[[], object]:
    """Kernels on teams of threads: one team is idle, another at work."""
    library = load_kernels()
    assert library is not None, "needs compiled kernels"
    layer = CompiledLinear(torch.ones(70, 40), None, library)

    def run() -> None:
        torch.set_num_threads(3)
        own = SimpleNamespace(threads=3, run=lambda args, _: library.run("linear", args, 3))
        layer._runners["linear"] = own
        layer(torch.ones(9, 40))

    run()
    return run


def transcribe(compute_type: str = "int8") -> Callable[[], object]:
    """Recognition with compiled kernels, or with torch's operations."""
    transcriber = Transcriber("demo", compute_type=compute_type, threads=2)
    audio = load_audio(QUESTION)[: 2 * SAMPLE_RATE]
    return lambda: list(transcriber.stream(audio))


def torch_only() -> Callable[[], object]:
    return transcribe("float32")


def translate() -> Callable[[], object]:
    """Translation with compiled kernels."""
    translator = Translator("demo-en-de", threads=2)
    return lambda: translator.translate("Where is the station? I would like to go home now.")


KINDS = {"teams": teams, "transcribe": transcribe, "torch": torch_only, "translate": translate}
# How the main thread ends, and the exit status.
ENDINGS = {"end": 0, "exit": 3, "error": 1, "interrupt": -signal.SIGINT}


def work_and_end(kind: str, ending: str, seed: int) -> None:
    """Let daemon threads compute for a moment, then end the main thread in one way."""
    work = KINDS[kind]()

    def repeat() -> None:
        while True:
            work()

    for _ in range(2):
        threading.Thread(target=repeat, daemon=True).start()
    time.sleep(random.Random(seed).uniform(0, 0.3))
    if ending == "exit":
        sys.exit(3)
    if ending == "error":
        raise LookupError("the main thread ends")
    if ending == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_LONGEST_S)


def failure(status: int, printed: str, ending: str) -> str | None:
    """What is wrong with the end of a process; None if it is right."""
    last_line = {"error": "LookupError: the main thread ends", "interrupt": "KeyboardInterrupt"}
    lines = printed.strip().splitlines() or [""]
    if status != ENDINGS[ending]:
        return f"status {status}: {lines[-1]}"
    if lines[-1] != last_line.get(ending, "") or "Exception in" in printed:
        return f"printed {printed!r}"
    return None


def ends(kinds: Iterable[str], count: int) -> dict[str, list[str]] | None:
    """End `count` processes of each kind.

    Returns:
        The failures of each kind; None in the processes that are to end.
    """
    failures: dict[str, list[str]] = {kind: [] for kind in kinds}
    for kind in failures:
        for number in range(count):
            ending = list(ENDINGS)[number % len(ENDINGS)]
            with tempfile.TemporaryFile() as stderr:
                child = os.fork()
                if child == 0:
                    os.dup2(stderr.fileno(), 2)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    work_and_end(kind, ending, number)
                    return None
                status = _wait(child)
                stderr.seek(0)
                wrong = failure(status, stderr.read().decode(errors="replace"), ending)
            if wrong is not None:
                failures[kind].append(f"{ending}: {wrong}")
                print(kind, failures[kind][-1], file=sys.stderr)
    return failures


def _wait(child: int) -> int:
    """The exit status of a process, which is killed if it takes too long."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    failures = ends(sys.argv[2:] or KINDS, int(sys.argv[1]))
    if failures is None:
        return
    for kind, wrong in failures.items():
        print(f"{kind}: {len(wrong)} of {sys.argv[1]} failed")
    sys.exit(any(failures.values()))


if __name__ == "__main__":
    main()
