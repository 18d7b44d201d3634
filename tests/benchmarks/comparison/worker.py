"""The worker process of one library: JSON requests on stdin, JSON answers on stdout, one per line.

Each library has its own process: thread pools of several libraries in one process compete for
the cores, and memory and threads left by one would count for the next.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.comparison.backends.base import Configuration, Runner
from tests.benchmarks.comparison.backends.registry import load_backend
from tests.benchmarks.comparison.limits import bandwidth, step_bytes
from tests.benchmarks.comparison.shapes import GGML_BYTES, Shape, ggml_file
from tests.benchmarks.comparison.work import Task, lines, samples

__all__ = ["Bench", "serve"]


class Preparation:
    """Role "prepare": makes the weights of a shape, and measures the machine."""

    def __init__(self, shape: Shape, folder: Path, device: str) -> None:
        self._shape, self._folder, self._device = shape, folder, device

    def write(self) -> None:
        """Write the weights, also in the formats of CTranslate2 and whisper.cpp if installed."""
        from tests.benchmarks.comparison.weights import convert, vocabulary, write
        from tests.formats.writers import write_ggml

        write(self._shape, self._folder)
        with suppress(ModuleNotFoundError):
            convert(self._shape, self._folder)
        if self._shape.kind == "whisper" and find_spec("_pywhispercpp"):
            words = [name.encode() for name in vocabulary(self._shape)][: self._shape.eos]
            for compute_type in GGML_BYTES:
                target = ggml_file(self._folder, compute_type)
                write_ggml(self._folder, target, compute_type, words)

    def bandwidth(self) -> float:
        """Memory bandwidth in bytes per second."""
        return bandwidth(self._device)

    def gpu(self) -> str:
        """The name of the GPU; "" on the CPU."""
        import torch

        return "" if self._device == "cpu" else torch.cuda.get_device_name(self._device)


class Peak:
    """Role "peak": peak memory of a library above the import of a module."""

    def __init__(self, base: str, place: str, shape: Shape, folder: Path, device: str) -> None:
        import_module(base)
        self._before = _peak_bytes()
        self._backend = load_backend(place, shape, folder, device)

    def measure(self, configuration: dict[str, Any], task: dict[str, Any]) -> float:
        """Peak memory in MB, from loading to the last token."""
        runner, work = self._backend.load(Configuration(**configuration)), Task(**task)
        runner.ready()
        _decode(runner, runner.encode(work.batch), work.tokens)
        return (_peak_bytes() - self._before) / 1e6


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return 1024 * int(kilobytes)


class Bench:
    """Role "race": a library with its loaded configurations."""

    def __init__(self, place: str, shape: Shape, folder: Path, device: str) -> None:
        self._shape = shape
        self._backend = load_backend(place, shape, folder, device)
        self._samples = samples()
        self._runners: dict[Configuration, Runner] = {}
        self._encoded: dict[tuple[Configuration, int], Any] = {}

    def dtypes(self) -> list[str]:
        return list(self._backend.dtypes())

    def batch_configurations(self, best: dict[str, Any], cores: int) -> list[dict[str, Any]]:
        return [
            asdict(each)
            for each in self._backend.batch_configurations(Configuration(**best), cores)
        ]

    def keep(self, configurations: list[dict[str, Any]]) -> None:
        """Load these configurations and unload all others."""
        kept = [Configuration(**each) for each in configurations]
        for configuration in kept:
            if configuration not in self._runners:
                self._runners[configuration] = self._backend.load(configuration)
        self._runners = {at: self._runners[at] for at in kept}
        self._encoded = {at: it for at, it in self._encoded.items() if at[0] in kept}
        gc.collect()

    def run(self, configuration: dict[str, Any], task: dict[str, Any]) -> float:
        """One measurement, in the unit of the task."""
        at, work = Configuration(**configuration), Task(**task)
        runner = self._runners[at]
        runner.ready()
        if work.kind == "step":
            return _step_s(runner, self._sources(at, work.batch), work.tokens) * 1000
        if work.kind == "growth":
            return _growth(runner, self._sources(at, 1), work.tokens)
        began = time.perf_counter()
        if work.kind == "window":
            _check(len(runner.transcribe(self._samples, work.tokens)), work.tokens)
            return (time.perf_counter() - began) * 1000
        if work.kind == "lines":
            text = lines(self._shape, work.batch)[:: self._backend.lines_share]
            tokens = runner.translate(text)
            _check(tokens, sum(line.tokens for line in text))
            return tokens / (time.perf_counter() - began)
        _decode(runner, runner.encode(work.batch), work.tokens)
        return (time.perf_counter() - began) * 1000

    def limit_bytes(self, configuration: dict[str, Any], batch: int) -> float:
        """Bytes that a step must read from memory."""
        at = Configuration(**configuration)
        weight, number = self._runners[at].step_bytes(self._sources(at, batch))
        return step_bytes(self._shape, batch, weight, number)

    def explain(self, configuration: dict[str, Any]) -> str:
        return self._runners[Configuration(**configuration)].explain()

    def _sources(self, at: Configuration, batch: int) -> Any:
        runner = self._runners[at]
        if (at, batch) not in self._encoded:
            runner.ready()
            self._encoded[at, batch] = runner.repeat(runner.encode(1), batch)
        return self._encoded[at, batch]


def _step_s(runner: Runner, encoded: Any, tokens: int) -> float:
    """Mean seconds per token after the first."""
    token_times: list[float] = []
    whole = _decode(runner, encoded, 1 + tokens, token_times)
    if token_times:
        return (token_times[-1] - token_times[0]) / tokens
    # Without times per token, subtract a run to the first token: the best of two, because a delay
    # of that run would make the steps look faster.
    first = min(_decode(runner, encoded, 1) for _ in range(2))
    return (whole - first) / tokens


def _decode(
    runner: Runner, encoded: Any, tokens: int, token_times: list[float] | None = None
) -> float:
    began = time.perf_counter()
    made = runner.decode(encoded, tokens, token_times)
    elapsed = time.perf_counter() - began
    for row in made:
        _check(len(row), tokens)
    return elapsed


def _growth(runner: Runner, encoded: Any, tokens: int) -> float:
    """Time of a step at the end over that of a step around token 10; medians of 16 steps."""
    token_times: list[float] = []
    _decode(runner, encoded, tokens, token_times)
    steps = [after - before for before, after in pairwise(token_times)]
    return median(steps[-16:]) / median(steps[2:18])


def _check(made: int, wanted: int) -> None:
    if made != wanted:
        raise RuntimeError(f"{made} tokens instead of {wanted}")


def serve() -> None:
    """Answer requests until stdin ends. Output of libraries goes to os.devnull."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    serving: Bench | Preparation | Peak | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["call"] == "open":
                serving, value = _open(*request["arguments"]), None
            else:
                value = getattr(serving, request["call"])(*request["arguments"])
            answer = {"value": value}
        except Exception as error:  # reported in the rows of this library
            answer = {"error": f"{type(error).__name__}: {error}", "missing": _missing(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _open(
    role: str, shape: dict[str, Any], folder: str, device: str, *place: str
) -> Bench | Preparation | Peak:
    known = Shape(**{**shape, "prompt": tuple(shape["prompt"]), "batches": tuple(shape["batches"])})
    if role == "prepare":
        return Preparation(known, Path(folder), device)
    if role == "peak":
        return Peak(*place, known, Path(folder), device)
    return Bench(*place, known, Path(folder), device)


def _missing(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError)


if __name__ == "__main__":
    serve()
