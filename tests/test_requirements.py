"""What faces the network has a lower bound, which the tested versions keep."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FACING = ("fastapi", "gradio", "h11", "huggingface-hub", "python-multipart", "starlette",
          "uvicorn", "websockets")  # fmt: skip


@pytest.mark.parametrize("name", FACING)
def test_a_lower_bound_that_the_tested_version_keeps(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = {canonicalize_name(r.name): r for r in map(Requirement, project["dependencies"])}
    bounds = required[name].specifier
    assert any(bound.operator == ">=" for bound in bounds)
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    tested = {canonicalize_name(of): version.split(";")[0].strip() for of, version in pairs}
    assert bounds.contains(tested[name]), f"{name} {tested[name]} is older than {bounds}"
