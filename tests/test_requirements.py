"""Each dependency has a range, and constraints.txt pins a tested version of each."""

from __future__ import annotations

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


def pins() -> dict[str, str]:
    """The versions of constraints.txt by canonical name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version.split(";")[0].strip() for name, version in pairs}


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_a_range_with_the_tested_version_in_it(name: str) -> None:
    bounds = REQUIRED[name].specifier
    operators = {bound.operator for bound in bounds}
    assert operators == ({">="} if name in UNBOUNDED else {">=", "<"})
    assert bounds.contains(pins()[name]), f"{name} {pins()[name]} is not in {bounds}"


def test_all_that_a_test_environment_holds_is_pinned() -> None:
    pinned = pins()
    roots = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    missing = sorted(name for name in closure(roots) if name not in pinned)
    assert not missing, f"constraints.txt does not pin {', '.join(missing)}"


def closure(roots: Iterable[str]) -> set[str]:
    """The installed distributions that these requirements draw in."""
    waiting, found = [Requirement(root) for root in roots], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if name in found:
            continue
        found.add(name)
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for child in map(Requirement, needed):
            if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras):
                child.marker = None
                waiting.append(child)
    return found
