"""Whisper base beside busy processes: EdgeApp and faster-whisper, wall seconds.

    python -m tests.benchmarks.neighbours [--neighbours 0,1,2] [--rounds 3]

Reads ../shared: the published Whisper base and people reading, window after window. Each library is
loaded once for each number of threads, in a process of its own; they take turns. A busy process
computes without end. Shown is the best of the rounds, and beside it the ratio to the library's own
time without neighbours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import REPOSITORY

__all__ = ["busy_neighbours"]

_SHARED = REPOSITORY.parent / "shared"
_MODEL = _SHARED / "models" / "whisper-base"
_FOLDER = "EDGEAPP_BENCH_FOLDER"  # environment variable: where processes keep what they convert
_RECORDINGS = ("sonnet1.mp3", "sonnet2.mp3")


@dataclass(frozen=True)
class Contender:
    """One library with one number of threads.

    Attributes:
        library: "EdgeApp" or "faster-whisper".
        threads: Its threads.
    """

    library: str
    threads: int

    @property
    def name(self) -> str:
        return f"{self.library}, {self.threads} thread{'s' if self.threads > 1 else ''}"


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """`count` processes that compute without end."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def _edgeapp(threads: int) -> Callable[[], str]:
    from pipelines import TranscribeOptions, Transcriber, load_audio

    recordings = [load_audio(_SHARED / "data" / "speech-real" / name) for name in _RECORDINGS]
    transcriber = Transcriber(_MODEL, compute_type="int8", threads=threads)

    def run() -> str:
        options = TranscribeOptions(language="en", temperature=0.0, batch_size=1)
        found = (transcriber.transcribe(each, options) for each in recordings)
        return "".join(segment.text for result in found for segment in result)

    return run


def _faster_whisper(threads: int) -> Callable[[], str]:
    from faster_whisper import WhisperModel

    from pipelines import load_audio

    recordings = [load_audio(_SHARED / "data" / "speech-real" / name) for name in _RECORDINGS]
    model = WhisperModel(_converted(), device="cpu", compute_type="int8", cpu_threads=threads)

    def run() -> str:
        found = (
            model.transcribe(r, language="en", temperature=0.0, beam_size=1)[0] for r in recordings
        )
        return "".join(segment.text for segments in found for segment in segments)

    return run


def _converted() -> str:
    """The model in CTranslate2's layout: in a folder that the parent process made and removes."""
    from ctranslate2.converters import TransformersConverter

    target = Path(os.environ[_FOLDER]) / "ctranslate2"
    if not target.is_dir():
        copied = ["tokenizer.json", "preprocessor_config.json"]
        TransformersConverter(str(_MODEL), copy_files=copied).convert(str(target))
    return str(target)


def _serve(contender: Contender) -> None:
    """Load, then decode once for each line of stdin; print the seconds that it took."""
    load = {"EdgeApp": _edgeapp, "faster-whisper": _faster_whisper}[contender.library]
    run = load(contender.threads)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        print(time.perf_counter() - began, flush=True)


def _start(contender: Contender, stack: ExitStack) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.neighbours", "--serve"]
        + [contender.library, str(contender.threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    stack.callback(process.communicate)
    stack.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"{contender.name} could not be loaded")
    return process


def _time(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--neighbours", default="0,1,2", help="numbers of busy processes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _serve(Contender(arguments.serve[0], int(arguments.serve[1])))
        return
    cores = len(os.sched_getaffinity(0))
    counts = [int(count) for count in arguments.neighbours.split(",")]
    contenders = [
        Contender(library, threads)
        for library in ("EdgeApp", "faster-whisper")
        for threads in sorted({1, cores})
    ]
    best: dict[tuple[Contender, int], float] = {}
    with ExitStack() as stack:
        os.environ[_FOLDER] = stack.enter_context(TemporaryDirectory(prefix="edgeapp-bench-"))
        processes = {contender: _start(contender, stack) for contender in contenders}
        for _ in range(arguments.rounds):
            for count in counts:
                with busy_neighbours(count):
                    for contender in contenders:
                        seconds = _time(processes[contender])
                        before = best.get((contender, count), seconds)
                        best[contender, count] = min(before, seconds)
    print(f"{cores} cores, seconds, and the ratio to {counts[0]} neighbours")
    print("| neighbours | " + " | ".join(contender.name for contender in contenders) + " |")
    print("|--:" * (len(contenders) + 1) + "|")
    for count in counts:
        cells = [
            f"{best[c, count]:.2f} ({best[c, count] / best[c, counts[0]]:.1f})" for c in contenders
        ]
        print(f"| {count} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
