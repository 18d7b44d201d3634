"""torch is installed as the build for CPUs where there is no GPU, from whatever index has it."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VERSION = "2.13.0"


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "assets/packaging/install_torch.py"))


def pip_that_finds(*found: bool) -> tuple[list[list[str]], Callable[[Sequence[str], bool], int]]:
    """A stand-in for pip whose calls succeed or fail in this order, and the calls."""
    calls: list[list[str]] = []

    def run(arguments: Sequence[str], quiet: bool) -> int:
        calls.append(list(arguments))
        return 0 if found[len(calls) - 1] else 1

    return calls, run


def test_the_configured_indexes_come_first(script: dict[str, Any]) -> None:
    calls, run = pip_that_finds(True)
    assert script["install"]("cpu", VERSION, run) == 0
    assert calls == [["torch==2.13.0+cpu"]]


def test_then_the_index_of_pytorch(script: dict[str, Any]) -> None:
    calls, run = pip_that_finds(False, True)
    assert script["install"]("cpu", VERSION, run) == 0
    assert calls[1][:3] == ["torch==2.13.0+cpu", "--extra-index-url", script["CPU_INDEX"]]


def test_the_default_build_comes_last_and_is_announced(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    calls, run = pip_that_finds(False, False, True)
    assert script["install"]("cpu", VERSION, run) == 0
    assert calls[2] == ["torch==2.13.0"]
    assert "several GB" in capsys.readouterr().err


def test_a_machine_with_a_gpu_gets_the_default_build(script: dict[str, Any]) -> None:
    calls, run = pip_that_finds(True)
    assert script["install"]("default", VERSION, run) == 0
    assert calls == [["torch==2.13.0"]]


@pytest.mark.parametrize(("gpu", "build"), [(True, "default"), (False, "cpu")])
def test_the_gpu_decides_on_linux(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, gpu: bool, build: str
) -> None:
    names = script["main"].__globals__
    asked: list[str] = []
    monkeypatch.setitem(names, "has_gpu", lambda: gpu)
    monkeypatch.setitem(names, "install", lambda build, version, run: asked.append(build) or 0)
    monkeypatch.setattr(names["sys"], "platform", "linux")
    assert script["main"](["-c", str(ROOT / "constraints.txt")]) == 0
    assert asked == [build]


def test_the_constraints_pin_torch(script: dict[str, Any], tmp_path: Path) -> None:
    assert script["pinned_version"](ROOT / "constraints.txt") == VERSION
    loose = tmp_path / "constraints.txt"
    loose.write_text("torch>=2\n")
    with pytest.raises(SystemExit, match="does not pin torch"):
        script["pinned_version"](loose)
