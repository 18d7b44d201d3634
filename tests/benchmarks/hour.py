"""An hour of people speaking, transcribed by the real Whisper base: EdgeApp and its rivals.

    python -m tests.benchmarks.hour [--minutes 60] [--language en] [--threads N]
        [--model base] [--contenders A,B] [--markdown] [--results FILE]

The recordings of ../shared/data (English: ten, 2.7 minutes with 359 words; German: one of 68 s) are
repeated until they last so many minutes. All contenders have the published weights of
../shared/models/whisper-base, in the form that their users download: float16, or whisper.cpp's
files. All decode greedily at temperature 0 only, in a given language, without word times, and
without earlier text as prompt: at temperature 0 alone, a phrase that is repeated by mistake would
stay in the prompt and be repeated on. All write timestamp tokens but faster-whisper in chunks.
Window by window no filter of speech is used; both programs with chunks cut by theirs.
whisper.cpp is the wheel of pywhispercpp, which is built for AVX2.

With `--model tiny.en` EdgeApp and faster-whisper read the files that `python -m tests.real_weights`
has fetched; `--model demo`, which is bundled, is for EdgeApp alone.

Each contender runs in a process of its own that first transcribes 30 s, unmeasured. Loading the
model and decoding the sound do not count for the times. The peak memory is that of the process:
Python, the libraries, the model (also while it is loaded), and the sound, which all map from one
file of float32 (an hour: 230 MB). `taskset` is the caller's.

With --results, each contender is appended to the file as it ends. One that the file has, for the
same language, minutes, threads and machine, is not run again: after a change of a program, start
another file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgeapp.bench.machine import cpu_name
from edgeapp.bench.word_lag import align, plain_words
from pipelines import SAMPLE_RATE
from pipelines.hub import bundled_folder
from tests.benchmarks.hour_contenders import CONTENDERS, Contender
from tests.conftest import REPOSITORY
from tests.fixtures.people import PAUSE_S, Recording, joined, read_people
from tests.real_weights import hub_cache_of, weights_folder

__all__ = ["Edits", "Result", "Task", "count_edits", "looped", "results", "table"]

_SHARED = REPOSITORY.parent / "shared"
# Model → libraries that read it.
_LIBRARIES = {
    "base": {contender.library for contender in CONTENDERS},
    "tiny.en": {"edgeapp", "faster-whisper"},
    "demo": {"edgeapp"},
}
_REFERENCE = "openai-whisper"  # its text is what the others are compared with
_COLUMNS = (
    "program",
    "computes in",
    "seconds",
    "× real time",
    "CPU seconds",
    "peak MB",
    "words",
    "edits, first round",
    "edits, all",
    "edits from openai-whisper's",
)


@dataclass(frozen=True)
class Task:
    """What is transcribed, and on what.

    Attributes:
        language: Code.
        minutes: That the recordings last at least.
        threads: Of each contender.
        machine: CPU and number of cores.
        model: "base", "tiny.en" or "demo".
    """

    language: str
    minutes: float
    threads: int
    machine: str
    model: str = "base"


@dataclass(frozen=True)
class Result:
    """What a contender did.

    Attributes:
        contender: Its name.
        task: The task.
        version: Of its library.
        compute_type: That it chose or was asked for.
        wall_s: Wall time.
        cpu_s: CPU time of all threads.
        peak_mb: Peak memory of its process.
        segments: Start and end in seconds, and text.
    """

    contender: str
    task: Task
    version: str
    compute_type: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    segments: Sequence[tuple[float, float, str]]

    @property
    def words(self) -> list[str]:
        return plain_words("".join(text for _, _, text in self.segments))


@dataclass(frozen=True)
class Edits:
    """Words to delete, insert or replace: in the first round, and in all."""

    first: int
    whole: int


def looped(recordings: Sequence[Recording], minutes: float) -> list[Recording]:
    """The recordings again and again, until they last so many minutes."""
    found: list[Recording] = []
    seconds = 0.0
    for recording in cycle(recordings):
        if seconds >= 60 * minutes:
            break
        found.append(recording)
        seconds += _seconds(recording)
    return found


def _seconds(recording: Recording) -> float:
    return len(recording.samples) / SAMPLE_RATE + PAUSE_S


def count_edits(reference: Sequence[str], found: Sequence[str], first: int) -> Edits:
    """Align all words, so that sound that is left out or repeated shifts no later round.

    Args:
        reference: What was said.
        found: What was written.
        first: Words of the reference in its first round.
    """
    whole = in_first = 0
    reached = False
    for i, j in align(reference, found):
        reached = reached or (i is not None and i >= first)
        wrong = i is None or j is None or reference[i] != found[j]
        whole += wrong
        in_first += wrong and not reached
    return Edits(in_first, whole)


def results(
    task: Task,
    contenders: Sequence[Contender],
    file: Path | None,
    measure: Callable[[Contender], Result],
) -> Iterator[Result]:
    """The result of each contender that did not fail: from the file, or measured and appended.

    Args:
        task: The task.
        contenders: In their order.
        file: JSON lines. None: no file is written.
        measure: Runs one of them. Raises RuntimeError: it failed, which is said on stderr.
    """
    known = {each.contender: each for each in _read(file) if each.task == task}
    for contender in contenders:
        if contender.name in known:
            print(f"{contender.name}: already in {file}", file=sys.stderr)
            yield known[contender.name]
            continue
        print(f"{contender.name}: {task.minutes:g} minutes …", file=sys.stderr, flush=True)
        try:
            result = measure(contender)
        except RuntimeError as error:
            print(f"{contender.name} is left out: {error}", file=sys.stderr)
            continue
        print(f"{contender.name}: {result.wall_s:.0f} s", file=sys.stderr)
        if file is not None:
            _append(file, result)
        yield result


def _read(file: Path | None) -> Iterator[Result]:
    if file is None or not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:  # the run was killed while it wrote
            continue
        yield Result(**{**fields, "task": Task(**fields["task"])})


def _append(file: Path, result: Result) -> None:
    with file.open("a+b") as lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(0, size - 1))
        separator = "" if lines.read(1) in (b"", b"\n") else "\n"  # after a line that was cut
        lines.write(f"{separator}{json.dumps(asdict(result))}\n".encode())


def table(found: Sequence[Result], said: Sequence[Recording], first: int, markdown: bool) -> str:
    """One row a result.

    Args:
        found: Results of one task.
        said: The recordings, in their order.
        first: How many of them are the first round.
        markdown: As a Markdown table; otherwise columns of text.
    """
    seconds = sum(map(_seconds, said))
    words = [plain_words(recording.text) for recording in said]
    spoken = [word for each in words for word in each]
    in_first = sum(map(len, words[:first]))
    exact = next((each.words for each in found if each.contender == _REFERENCE), None)
    titles = {contender.name: contender.title for contender in CONTENDERS}
    head = (*_COLUMNS[:-3], f"{_COLUMNS[-3]} ({in_first:,})", f"{_COLUMNS[-2]} ({len(spoken):,})",
            _COLUMNS[-1])  # fmt: skip
    rows = [head]
    for result in found:
        edits = count_edits(spoken, result.words, in_first)
        other = None if exact is None else count_edits(exact, result.words, 0).whole
        rows.append(
            (
                titles[result.contender],
                result.compute_type,
                f"{result.wall_s:,.1f}",
                f"{seconds / result.wall_s:.1f}",
                f"{result.cpu_s:,.1f}",
                f"{result.peak_mb:,.0f}",
                f"{len(result.words):,}",
                f"{edits.first:,}",
                f"{edits.whole:,}",
                "–" if other is None else f"{other:,}",
            )
        )
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], "|---|---|" + "--:|" * (len(head) - 2), *lines[1:]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


class _Measuring:
    """Runs contenders, each in a process of its own.

    Args:
        task: The task.
        folder: For the sound and the weights in other programs' forms.
        said: The recordings.
    """

    def __init__(self, task: Task, folder: Path, said: Sequence[Recording]) -> None:
        self._task, self._folder, self._said = task, folder, said

    def __call__(self, contender: Contender) -> Result:
        try:
            installed = version(contender.library)
        except PackageNotFoundError:
            raise RuntimeError(f"{contender.library} is not installed") from None
        arguments = [self._weights(contender.weights), self._sound(), self._task.language]
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.hour_contenders", contender.name]
            + [*map(str, arguments), str(self._task.threads)],
            env={**os.environ, "OMP_NUM_THREADS": str(self._task.threads)},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:]
            raise RuntimeError(f"its process ended with {done.returncode}: {''.join(last)}")
        return Result(contender.name, self._task, installed, **json.loads(done.stdout))

    def _sound(self) -> Path:
        file = self._folder / "sound.npy"
        if not file.exists():
            np.save(file, joined(self._said).samples)
        return file

    def _weights(self, form: str) -> Path:
        from tests.formats.writers import write_ctranslate2, write_ggml, write_pt

        published, target = _published(self._task.model), self._folder / form
        if form == "folder" or self._task.model == "tiny.en":
            return published
        if target.exists():
            return target
        if form == "ctranslate2":
            files = "tokenizer.json", "preprocessor_config.json"
            return write_ctranslate2(published, target, "float16", *files)
        if form == "openai":
            return write_pt(published, target)
        return write_ggml(published, target, form)


def _published(model: str) -> Path:
    """The folder of a model, which need not exist."""
    if model == "demo":
        return bundled_folder("demo")
    if model == "base":
        return _SHARED / "models" / "whisper-base"
    cache = hub_cache_of(weights_folder() or Path())
    return next(cache.glob("models--Systran--faster-whisper-tiny.en/snapshots/*"), cache / model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--language", choices=("en", "de"), default="en")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--model", choices=tuple(_LIBRARIES), default="base")
    parser.add_argument("--contenders", help="of " + ", ".join(names))
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--results", type=Path, help="file that keeps results, and goes on")
    arguments = parser.parse_args()
    readers = _LIBRARIES[arguments.model]
    names = [contender.name for contender in CONTENDERS if contender.library in readers]
    asked = names if arguments.contenders is None else arguments.contenders.split(",")
    if unknown := sorted({*asked} - {*names}):
        parser.error(f"no contender {', '.join(unknown)}; there are {', '.join(names)}")
    if arguments.language != "en" and arguments.model != "base":
        parser.error(f"{arguments.model} understands English only")
    if not (folder := _published(arguments.model)).is_dir():
        parser.error(f"needs the real Whisper {arguments.model}, which is not at {folder}")
    people = read_people(_SHARED / "data").values()
    round_ = [each for each in people if each.language == arguments.language]
    said = looped(round_, arguments.minutes)
    machine = f"{cpu_name()}, {os.cpu_count()} cores"
    task = Task(arguments.language, arguments.minutes, arguments.threads, machine, arguments.model)
    # An end that stops the contender's process too, and removes the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = [contender for contender in CONTENDERS if contender.name in asked]
    with TemporaryDirectory(prefix="edgeapp-hour-") as own:
        measure = _Measuring(task, Path(own), said)
        found = list(results(task, chosen, arguments.results, measure))
    print(table(found, said, min(len(round_), len(said)), arguments.markdown))
    if len(found) < len(chosen):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
