"""The contenders of `tests.benchmarks.hour`; run as a program, one of them in a process of its own.

    python -m tests.benchmarks.hour_contenders NAME MODEL SOUND LANGUAGE THREADS

Prints a JSON object: `compute_type`, `wall_s`, `cpu_s`, `peak_mb` and `segments` of start, end (s)
and text. Imports no library but that of the contender: each would count for the peak memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONTENDERS", "Contender"]

_WARM_UP = 30 * 16_000  # samples


@dataclass(frozen=True)
class Contender:
    """A way to transcribe.

    Attributes:
        name: Of the command line and the results.
        title: In the table.
        library: The distribution to install.
        weights: The form of the weights that it reads: "folder" as published, "ctranslate2",
            "openai", or a compute type of whisper.cpp.
        compute_type: What the library is asked for.
        batch_size: Pieces decoded in parallel; 1: window by window.
    """

    name: str
    title: str
    library: str
    weights: str
    compute_type: str
    batch_size: int = 1


CONTENDERS = (
    Contender("edgeapp-sequential", "EdgeApp, window by window", "edgeapp", "folder", "auto"),
    Contender("edgeapp-batched", "EdgeApp, 8 chunks", "edgeapp", "folder", "auto", 8),
    Contender(
        "faster-whisper-sequential",
        "faster-whisper, window by window",
        "faster-whisper",
        "ctranslate2",
        "int8",
    ),
    Contender(
        "faster-whisper-batched",
        "faster-whisper, 8 chunks",
        "faster-whisper",
        "ctranslate2",
        "int8",
        8,
    ),
    Contender("openai-whisper", "openai-whisper", "openai-whisper", "openai", "float32"),
    Contender("whisper.cpp-q8_0", "whisper.cpp", "pywhispercpp", "q8_0", "q8_0"),
    Contender("whisper.cpp-float16", "whisper.cpp", "pywhispercpp", "float16", "float16"),
)

Segment = tuple[float, float, str]
Run = Callable[["NDArray[np.float32]"], list[Segment]]
# Contender, weights, language, threads → its compute type, and what transcribes.
Load = Callable[[Contender, str, str, int], tuple[str, Run]]


def _edgeapp(contender: Contender, model: str, language: str, threads: int) -> tuple[str, Run]:
    from pipelines import Transcriber

    transcriber = Transcriber(model, compute_type=contender.compute_type, threads=threads)

    def run(samples: NDArray[np.float32]) -> list[Segment]:
        found = transcriber.transcribe(
            samples,
            language=language,
            temperature=0.0,
            condition_on_previous_text=False,
            batch_size=contender.batch_size,
        )
        return [(segment.start, segment.end, segment.text) for segment in found]

    return transcriber.model.compute_type, run


def _faster_whisper(
    contender: Contender, model: str, language: str, threads: int
) -> tuple[str, Run]:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    loaded = WhisperModel(
        model, device="cpu", compute_type=contender.compute_type, cpu_threads=threads
    )
    options: dict[str, Any] = {"language": language, "temperature": 0.0, "beam_size": 1}
    options["condition_on_previous_text"] = False
    pipeline: Any = loaded
    if contender.batch_size > 1:
        # Its defaults: a filter finds speech, and chunks have no timestamp tokens. With these it
        # leaves out the ends of chunks: 68 edits in 359 words instead of 26.
        pipeline = BatchedInferencePipeline(loaded)
        options["batch_size"] = contender.batch_size

    def run(samples: NDArray[np.float32]) -> list[Segment]:
        segments, _ = pipeline.transcribe(samples, **options)
        return [(segment.start, segment.end, segment.text) for segment in segments]

    return loaded.model.compute_type, run


def _openai_whisper(
    contender: Contender, model: str, language: str, threads: int
) -> tuple[str, Run]:
    import torch

    whisper = import_module("whisper")
    torch.set_num_threads(threads)
    loaded = whisper.load_model(model, device="cpu")

    def run(samples: NDArray[np.float32]) -> list[Segment]:
        found = loaded.transcribe(
            samples,
            language=language,
            temperature=0.0,
            condition_on_previous_text=False,
            fp16=False,
        )
        return [(each["start"], each["end"], each["text"]) for each in found["segments"]]

    return contender.compute_type, run


def _whisper_cpp(contender: Contender, model: str, language: str, threads: int) -> tuple[str, Run]:
    cpp: Any = import_module("_pywhispercpp")
    how = cpp.whisper_context_default_params()
    how.use_gpu = False
    context = cpp.whisper_init_from_file_with_params(model, how)
    params = cpp.whisper_full_default_params(cpp.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    params.n_threads, params.language = threads, language
    params.temperature_inc = 0.0  # no temperature fallback
    params.greedy = {"best_of": 1}
    # As the others: no prompt of earlier text, no symbols that are not spoken.
    params.no_context = params.suppress_nst = True
    params.print_progress = params.print_realtime = params.print_timestamps = False

    def run(samples: NDArray[np.float32]) -> list[Segment]:
        cpp.whisper_full(context, params, samples, len(samples))
        return [
            (
                cpp.whisper_full_get_segment_t0(context, number) / 100,
                cpp.whisper_full_get_segment_t1(context, number) / 100,
                cpp.whisper_full_get_segment_text(context, number).decode("utf-8", "replace"),
            )
            for number in range(cpp.whisper_full_n_segments(context))
        ]

    return contender.compute_type, run


_LOADS: dict[str, Load] = {
    "edgeapp": _edgeapp,
    "faster-whisper": _faster_whisper,
    "openai-whisper": _openai_whisper,
    "pywhispercpp": _whisper_cpp,
}


def _peak_mb() -> float:
    """Of this process alone: ru_maxrss would begin with the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def _measured(name: str, model: str, sound: str, language: str, threads: str) -> dict[str, Any]:
    contender = next(each for each in CONTENDERS if each.name == name)
    samples = np.load(sound, mmap_mode="r")
    compute_type, run = _LOADS[contender.library](contender, model, language, int(threads))
    run(samples[:_WARM_UP])
    wall, cpu = time.perf_counter(), time.process_time()
    segments = run(samples)
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": _peak_mb(),
        "compute_type": compute_type,
        "segments": segments,
    }


def main(arguments: Sequence[str]) -> None:
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print
    json.dump(_measured(*arguments), answer)
    answer.close()


if __name__ == "__main__":
    main(sys.argv[1:])
