"""Kernels for ARM: how they are chosen, the instructions that they are compiled to, and, where an
arm64 Python is at hand, what they compute there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.asr import load_audio
from pipelines.asr.audio.features import FileFeatures
from pipelines.engine import Engine
from pipelines.engine.kernels import code_cache, loader
from pipelines.engine.kernels.abi import PANEL_OUTPUTS
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.model import precision
from pipelines.engine.model.precision import compute_plan, loading_plan
from pipelines.engine.weights.quantized import quantize_weight
from tests.engine.kernels.cross_compile import tile_assembly

CPU = torch.device("cpu")
# Products of one row, and of several rows.
INSTRUCTIONS = {
    "i8mm": ({"usdot", "addp"}, {"usmmla"}),
    "dotprod": ({"sdot"}, {"sdot"}),
    "neon": ({"smull", "smull2", "addp", "sadalp"}, {"smull", "smull2", "addp", "sadalp"}),
}
# Runs an arm64 Python with the wheels of this project: "ARM" in assets/docs/development.md.
ARM_PYTHON = os.environ.get("EDGEAPP_TEST_ARM_PYTHON")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What torch says of an ARM CPU on Linux; a test adds the instructions."""
    flags: dict[str, Any] = {"architecture": "arm64"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.delenv("EDGEAPP_KERNELS", raising=False)
    return flags


def test_the_best_instructions_of_the_cpu_are_used(arm: dict[str, Any]) -> None:
    assert loader.expected_isa() is None
    chosen = []
    for flag in ("neon", "dot", "i8mm"):
        arm[flag] = True
        plan = compute_plan("auto", CPU)
        chosen.append((loader.expected_isa(), plan.compute_type, plan.reason))
    assert chosen == [
        ("neon", "int8", "the CPU multiplies int8 (NEON)"),
        ("dotprod", "int8", "the CPU multiplies int8 (NEON with dot products)"),
        ("i8mm", "int8", "the CPU multiplies int8 (NEON with int8 matrix products)"),
    ]
    assert Engine(device="cpu").instructions == "NEON with int8 matrix products"


def test_float32_where_kernels_are_off_or_the_system_is_unknown(
    arm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arm["neon"] = arm["dot"] = True
    with monkeypatch.context() as context:
        context.setenv("EDGEAPP_KERNELS", "torch")
        plan = compute_plan("auto", CPU)
        assert (plan.compute_type, plan.reason) == ("float32", "the int8 kernels are disabled")
    with monkeypatch.context() as context:
        context.setattr(sys, "platform", "emscripten")
        plan = compute_plan("auto", CPU)
        assert (plan.compute_type, plan.reason) == (
            "float32", "the int8 kernels do not know this system",
        )  # fmt: skip
    arm["neon"] = arm["dot"] = False
    assert compute_plan("auto", CPU).reason == "the CPU has no fast int8"
    assert Engine(device="cpu").instructions is None


def test_a_model_is_loaded_in_float32_if_its_kernels_fail(
    arm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arm["neon"] = arm["dot"] = True
    monkeypatch.setattr(precision, "load_kernels", lambda: None)
    plan = loading_plan("auto", CPU)
    assert (plan.compute_type, plan.decoder.kernel) == ("float32", "dense")
    assert loading_plan("int8", CPU).compute_type == "int8"  # as asked


@pytest.mark.parametrize(("level", "kernel"), [("dotprod", "int8"), ("neon", "dense")])
def test_sound_is_encoded_in_int8_where_that_saves_time(
    level: str, kernel: str, arm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arm["neon"] = arm["dot"] = True
    monkeypatch.setattr(precision, "load_kernels", lambda: SimpleNamespace(level=level))
    assert loading_plan("auto", CPU).for_audio_source(64).encoder.kernel == kernel


@pytest.mark.parametrize("level", INSTRUCTIONS)
def test_weights_are_packed_in_groups_of_inputs(level: str) -> None:
    library = KernelLibrary(level, {}, None)
    weight = torch.randn(40, 24, generator=torch.Generator().manual_seed(1))
    layer = CompiledLinear(weight, None, library)
    group = {"i8mm": 8, "dotprod": 4, "neon": 4}[level]
    packed = layer._tensors[0].view(torch.int8).view(-1, 24 // group, PANEL_OUTPUTS, group)
    numbers = packed.transpose(1, 2).reshape(-1, 24)
    assert torch.equal(numbers[:40], quantize_weight(weight).numbers)
    assert not numbers[40:].any()


@pytest.mark.parametrize("level", INSTRUCTIONS)
def test_products_are_those_of_the_instruction_set(level: str) -> None:
    single, several = INSTRUCTIONS[level]
    for rows in (1, 2, 4, 8):
        lines = [line.split() for line in tile_assembly(level, rows) if line.startswith("\t")]
        assert {line[0] for line in lines} >= (single if rows == 1 else several), rows
        # Registers of sums and weights never go to the stack.
        on_stack = [line for line in lines if line[1:] and line[1][0] == "q" and "[sp" in line[-1]]
        assert not on_stack, rows


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Numba compiles for Linux here")
def test_all_kernels_compile_for_arm(tmp_path: Path) -> None:
    code = code_cache.unpack(_cross_compiled("dotprod", tmp_path))
    assert code is not None
    assert set(code.symbols) == {
        "argmax", "linear", "encoder_pass", "project_cross_kv", "decoder_step", "attend_head",
        "team_run", "team_join", "team_close", "team_spin",
    }  # fmt: skip
    assert code.code[:4] == b"\x7fELF"
    assert int.from_bytes(code.code[18:20], "little") == 183  # EM_AARCH64


@pytest.mark.slow
@pytest.mark.skipif(ARM_PYTHON is None, reason="EDGEAPP_TEST_ARM_PYTHON names no arm64 Python")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("level", INSTRUCTIONS)
def test_on_arm_models_write_the_same_in_int8_and_float32(level: str, tmp_path: Path) -> None:
    assert ARM_PYTHON is not None
    file = tmp_path / "kernels"
    file.write_bytes(_cross_compiled(level, tmp_path))
    samples = load_audio(Path(__file__).parents[3] / "assets" / "samples" / "question.flac")
    sound = tmp_path / "sound.npy"
    np.save(sound, FileFeatures(samples, 80, 1000).window(0)[0].numpy())
    script = str(Path(__file__).with_name("arm_check.py"))
    arguments = [script, level, str(file), str(sound)]
    found = json.loads(_output([*shlex.split(ARM_PYTHON), *arguments]))
    assert (found["architecture"], found["wrong"]) == ("arm64", [])
    for key in ("translations", "transcript"):
        assert found["auto"][key] == found["float32"][key], key


def _cross_compiled(level: str, folder: Path) -> bytes:
    file = folder / level
    _output([sys.executable, "-m", "tests.engine.kernels.cross_compile", level, str(file)])
    return file.read_bytes()


def _output(command: list[str]) -> str:
    """The last line of what a command writes."""
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("\n")[0].rpartition("\n")[2]
