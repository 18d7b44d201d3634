"""What the kernels compute on ARM: `python tests/engine/kernels/arm_check.py LEVEL KERNELS SOUND`.

Run it under an arm64 Python (see "ARM" in assets/docs/development.md). KERNELS has the kernels of
the level, from `cross_compile.py`; SOUND is the spectrum of a recording, .npy, float32 [80, 1000].
Prints one line of JSON: the kernels that compute something else than torch, and what the bundled
models write in float32 and in int8.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.engine import Engine, GenerationOptions, Request
from pipelines.engine.kernels import loader
from pipelines.engine.kernels.code_cache import unpack
from pipelines.engine.kernels.host.self_check import wrong_kernels
from pipelines.hub import bundled_folder
from tests.engine.kernels.translations import translations


def written(compute_type: str, sound: torch.Tensor) -> dict[str, Any]:
    """Texts and tokens of the bundled models, and how they were computed."""
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        kernels, texts = translations(engine)
        recognizer = engine.load(bundled_folder("demo"))
        start = (recognizer.architecture.start_id,)
        request = Request(recognizer.encode([sound])[0], start, GenerationOptions(40))
        return {
            "computed by": kernels,
            "audio encoder": recognizer.backend.plan.encoder.kernel,
            "translations": texts,
            "transcript": list(engine.generate([request])[0].tokens),
        }


def check(level: str, content: bytes, sound: torch.Tensor) -> dict[str, Any]:
    """Use these kernels as the loader would, and compare."""
    code = unpack(content)
    assert code is not None, "the file is damaged"
    library = loader.link(code, level)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels"
        path.mkdir(0o700)
        loader._cache_folder = lambda: path
        loader.cpu_isa = lambda: level
        loader._cache_path(level).write_bytes(content)
        torch.set_num_threads(3)  # a team of threads
        return {
            "architecture": torch.cpu.get_capabilities()["architecture"],
            "level": level,
            "wrong": wrong_kernels(library),
            "auto": written("auto", sound),
            "float32": written("float32", sound),
        }


if __name__ == "__main__":
    spectrum = torch.from_numpy(np.load(sys.argv[3]))
    print(json.dumps(check(sys.argv[1], Path(sys.argv[2]).read_bytes(), spectrum)))
