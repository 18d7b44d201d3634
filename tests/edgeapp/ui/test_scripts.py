"""The page's scripts: what needs no browser runs in Node; types are checked where TypeScript is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgeapp.ui import STATIC

HERE = Path(__file__).parent


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, not installed here")
def test_scripts_that_need_no_browser() -> None:
    run("node", "--test", *map(str, sorted(HERE.glob("*.test.mjs"))))


@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs typescript, not installed here")
def test_types_of_the_editor() -> None:
    run("tsc", "-p", str(STATIC / "jsconfig.json"))
