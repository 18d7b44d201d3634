"""Encoding 30 s of sound: float32, int8, and CTranslate2's int8.

    python -m tests.benchmarks.int8_encoder MODEL [CTRANSLATE2_FOLDER]

Each row is a process whose libraries are restricted to one instruction set. CPU time on one thread,
the shortest of seven: busy neighbors change it less than wall time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
_AVX512 = {
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
    "DNNL_MAX_CPU_ISA": "AVX512_CORE_VNNI",
    "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1",
    "CT2_FORCE_CPU_ISA": "AVX512",
}
# The kernels' instruction set → the restrictions of the other libraries.
_LEVELS = {"avx2": _AVX2, "vnni256": _AVX2, "vnni512": _AVX512, "amx": {}}
_NEEDED = {"vnni512": "avx512_vnni", "amx": "amx_int8"}
_RUNS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder of a Whisper model")
    parser.add_argument("ctranslate2", nargs="?", help="the same model converted for CTranslate2")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        kind, level = args.one
        work = _theirs(args.ctranslate2) if kind == "CTranslate2" else _ours(args, kind, level)
        print(f"{1000 * _shortest(work):.0f}")
        return
    kinds = ["float32", "int8", *(["CTranslate2"] if args.ctranslate2 else [])]
    print("| instructions |", " | ".join(kinds), "|")
    print("|---|" + "--:|" * len(kinds))
    able = torch.cpu.get_capabilities()
    for level, environment in _LEVELS.items():
        if not able.get(_NEEDED.get(level, "avx2")):
            continue
        row = [_process(kind, level, environment) for kind in kinds]
        print(f"| {level} |", " | ".join(f"{time} ms" for time in row), "|", flush=True)


def _process(kind: str, level: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "tests.benchmarks.int8_encoder", *sys.argv[1:]]
    done = subprocess.run(
        [*command, "--one", kind, level],
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def _shortest(work: Callable[[], object]) -> float:
    """CPU seconds."""
    work()
    times = []
    for _ in range(_RUNS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        work()
        times.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
    return min(times)


def _ours(args: argparse.Namespace, kind: str, level: str) -> Callable[[], object]:
    from pipelines.engine import Engine
    from pipelines.engine.kernels import loader
    from pipelines.engine.model import precision
    from pipelines.engine.model.threads import ComputeThreads

    able = precision._cpu_capabilities()
    precision._cpu_capabilities = lambda: replace(able, bfloat16=False)
    loader.cpu_isa = lambda: level
    if kind == "float32":
        precision.ComputePlan.for_audio_source = lambda plan, _: plan  # type: ignore[method-assign]
    model: Any = Engine(device="cpu", compute_type="int8", threads=1).load(args.model)
    frames = torch.randn(1, model.architecture.num_mel_bins, 3_000)

    def work() -> object:
        with torch.inference_mode():
            return model.backend._encoder.encode(frames, ComputeThreads())[0]

    return work


def _theirs(folder: str) -> Callable[[], object]:
    import ctranslate2

    model = ctranslate2.models.Whisper(folder, compute_type="int8", intra_threads=1)
    frames = np.random.default_rng(0).standard_normal((1, model.n_mels, 3_000), np.float32)
    features = ctranslate2.StorageView.from_array(frames)
    return lambda: model.encode(features)


if __name__ == "__main__":
    main()
