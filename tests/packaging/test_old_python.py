"""A Python that is too old is told so in one line, before anything is installed or imported."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Runs `python -c CODE` and `python -m MODULE` in this Python, which says that it is an older one.
OLD = """
import runpy, sys
sys.version_info, sys.version = (3, 10, 13, "final", 0), "3.10.13 (main)"
kind, what = sys.argv[1:3]
assert (kind, what) != ("-m", "venv"), "an environment is made"
exec(what) if kind == "-c" else runpy.run_module(what, run_name="__main__")
assert kind == "-c", "it runs"
"""
# Without the variables of a make that runs the tests: a make below it names itself make[1].
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """A command that stands for Python 3.10."""
    (tmp_path / "old.py").write_text(OLD, encoding="utf-8")
    command = tmp_path / "python3.10"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/old.py" "$@"\n')
    command.chmod(0o755)
    return command


@pytest.mark.parametrize("target", ["demo", "fast", "test"])
def test_make_installs_nothing(target: str, old_python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", target, f"PYTHON={old_python}", f"VENV={tmp_path}/venv"],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    said = done.stderr.splitlines()
    assert said[0] == (
        f"edgeapp: needs Python 3.11 or later; {old_python} is 3.10.13; "
        "make PYTHON=python3.11 names another"
    )
    assert [line.split(":")[0] for line in said[1:]] == ["make"]
    assert done.returncode != 0
    assert not (tmp_path / "venv").exists()


def test_a_checkout_is_not_run(old_python: Path) -> None:
    done = subprocess.run(
        [old_python, "-m", "edgeapp", "demo"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True,
        text=True, timeout=180,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"edgeapp: needs Python 3.11 or later; {sys.executable} is 3.10.13\n"


@pytest.mark.parametrize("file", ["edgeapp/__init__.py", "edgeapp/__main__.py"])
def test_an_older_python_can_read_what_says_so(file: str) -> None:
    ast.parse((ROOT / file).read_text("utf-8"), feature_version=(3, 7))
