"""Each dependency has a range, and constraints.txt pins a tested version of each."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REQUIRED = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"])}

# Versions are years, and nothing that is used here has ever changed.
UNBOUNDED = {"packaging"}


PYTHON = ".".join(map(str, sys.version_info[:2]))


def pins(python: str = PYTHON) -> dict[str, str]:
    """Return the versions of constraints.txt for a Python, such as "3.13", by canonical name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in requirements
        if each.marker is None or each.marker.evaluate(environment(python))
    }


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_range_with_the_tested_version_in_it(name: str) -> None:
    bounds = REQUIRED[name].specifier
    operators = {bound.operator for bound in bounds}
    assert operators == ({">="} if name in UNBOUNDED else {">=", "<"})
    assert bounds.contains(pins()[name]), f"{name} {pins()[name]} is not in {bounds}"


# What a newer Python draws in is known as far as the distributions say that are installed here.
@pytest.mark.parametrize("python", sorted({PYTHON, "3.11", "3.12", "3.13", "3.14", "3.15"}))
def test_all_that_a_test_environment_holds_is_pinned(python: str) -> None:
    assert unpinned(python) == []


# What the builds of torch 2.13 ask for on Linux.
COMMON = ["filelock", "typing-extensions>=4.10.0", "sympy>=1.13.3", "jinja2"]
BUILDS = {
    "cpu": {"torch": COMMON},
    "cuda": {
        "torch": [
            *COMMON,
            'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
            'cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"',
            'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
            'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"',
        ],
        "cuda-toolkit": [
            'nvidia-cublas==13.1.1.3.*; sys_platform == "linux" and extra == "cublas"'
        ],
        "cuda-bindings": ["cuda-pathfinder~=1.1"],
        "nvidia-cudnn-cu13": ["nvidia-cublas"],
        "nvidia-cublas": [],
        "cuda-pathfinder": [],
        "triton": [],
    },
    "rocm": {"torch": [*COMMON, 'triton-rocm==3.7.1; platform_system == "Linux"']},
}


@pytest.mark.parametrize("build", BUILDS)
def test_each_build_of_torch_pins_the_libraries_of_its_gpu(
    build: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, requirements in BUILDS[build].items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", "Version: 1", *(f"Requires-Dist: {r}" for r in requirements)]
        (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert metadata.version("torch") == "1"
    assert {"sympy", "mpmath", "jinja2", "markupsafe"} <= closure(["torch"])
    assert unpinned() == []


def unpinned(python: str = PYTHON) -> list[str]:
    """Return what constraints.txt lacks of a test environment."""
    roots = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    return sorted(closure(roots, python) - pins(python).keys())


def environment(python: str, extra: str = "") -> dict[str, str]:
    """Return what markers are evaluated with: this machine with another Python."""
    return {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}


def closure(roots: Iterable[str], python: str = PYTHON) -> set[str]:
    """Return the installed distributions that these requirements draw in.

    What torch requires on one platform alone are the libraries of a GPU. Each build of torch names
    their versions itself, and constraints for one build would keep another from being installed.
    """
    waiting, found = [Requirement(root) for root in roots], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        marker = requirement.marker
        if marker and not any(marker.evaluate(environment(python, each)) for each in extras):
            continue
        if name in found:
            continue
        found.add(name)
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for child in map(Requirement, needed):
            if name == "torch" and "platform_system" in str(child.marker):
                continue
            if child.marker is None or any(
                child.marker.evaluate(environment(python, each)) for each in extras
            ):
                child.marker = None
                waiting.append(child)
    return found


def lowest_versions() -> dict[str, str]:
    """Package → its lower bound."""
    bounds = ((name, bound) for name, r in REQUIRED.items() for bound in r.specifier)
    return {name: bound.version for name, bound in bounds if bound.operator in (">=", "==")}
