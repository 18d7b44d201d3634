"""`auto` on older CPUs, by environment variables that limit the instructions of the libraries."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.kernels.translations import SENTENCES

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch._C._has_mkldnn,
    reason="the variables that limit libraries are those of x86",
)

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
}
OLDEST = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
SCRIPT = """
import json
import torch
from pipelines.engine.model.precision import StackPrecision, compute_plan
from pipelines.engine.model.linear import make_linear
from pipelines.engine import Engine
from tests.engine.kernels.translations import translations

cpu = torch.device("cpu")
plan = compute_plan("auto", cpu)
precision = StackPrecision("int8", torch.int8, torch.float32)
layer = make_linear(torch.ones(32, 64), None, precision, cpu)
texts = {}
for compute_type in ("float32", "auto"):
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        _, texts[compute_type] = translations(engine)
ones = [layer(torch.ones(rows, 64)).flatten().tolist() for rows in (1, 4)]
found = {"precision": plan.compute_type, "why": plan.reason, "ones": ones, "texts": texts}
print(json.dumps(found))
"""


def _run_limited(limits: dict[str, str]) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | limits,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith(("AVX2", "AVX512")),
    reason="this CPU has no AVX2",
)
@pytest.mark.parametrize("kernels", ["compiled", "torch"])
def test_auto_is_int8_without_vnni_and_does_not_overflow(kernels: str) -> None:
    result = _run_limited(AVX2 | ({"EDGEAPP_KERNELS": "torch"} if kernels == "torch" else {}))
    assert (result["precision"], "no VNNI" in result["why"]) == ("int8", True)
    # The largest numbers there are: with 8 bits of each, sums of 16 bits would overflow.
    for sums in result["ones"]:
        assert sums == pytest.approx([64.0] * len(sums), rel=0.01)
    exact, quick = result["texts"]["float32"], result["texts"]["auto"]
    assert sum(a == b for a, b in zip(exact, quick, strict=True)) >= len(SENTENCES) - 2


@pytest.mark.slow
def test_auto_is_float32_on_the_oldest_cpus() -> None:
    result = _run_limited(OLDEST)
    assert (result["precision"], result["why"]) == ("float32", "the CPU has no fast int8")
    assert result["texts"]["float32"] == result["texts"]["auto"]
    assert result["texts"]["auto"][0].startswith("Wo ist der Bahnhof")
