"""What faces the network has a lower bound, which the tested versions keep."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FACING = ("fastapi", "gradio", "h11", "huggingface-hub", "python-multipart", "starlette",
          "uvicorn", "websockets")  # fmt: skip


def declared_bounds() -> dict[str, SpecifierSet]:
    """Package → its bounds in pyproject.toml; none is an empty set."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = map(Requirement, project["dependencies"])
    return {canonicalize_name(r.name): r.specifier for r in required}


def lowest_versions() -> dict[str, str]:
    """Package → its lower bound, of those that have one."""
    bounds = declared_bounds().items()
    return {name: s.version for name, of in bounds for s in of if s.operator in (">=", "==")}


def pinned_versions() -> dict[str, str]:
    """Package → its version in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(of): version.split(";")[0].strip() for of, version in pairs}


@pytest.mark.parametrize("name", FACING)
def test_a_lower_bound_that_the_tested_version_keeps(name: str) -> None:
    bounds, tested = declared_bounds()[name], pinned_versions()
    assert any(bound.operator == ">=" for bound in bounds)
    assert bounds.contains(tested[name]), f"{name} {tested[name]} is older than {bounds}"


def test_every_requirement_has_a_tested_version() -> None:
    """torch's may carry a local version, such as 2.13.0+cpu."""
    tested = pinned_versions()
    for name, bounds in declared_bounds().items():
        assert name in tested, f"constraints.txt lacks {name}"
        assert bounds.contains(tested[name]), f"{name} {tested[name]} is not within {bounds}"
