"""The manual page is that of the command line as it is now."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "assets/packaging"


def test_the_manual_page_is_current() -> None:
    script = runpy.run_path(str(FOLDER / "man_page.py"))
    current = (FOLDER / "edgeapp.1").read_text("utf-8")
    assert current == script["page"](), "run: python assets/packaging/man_page.py"
    table = script["DOCUMENT"].read_text("utf-8")
    assert table == script["document"](), "run: python assets/packaging/man_page.py"


@pytest.mark.skipif(not shutil.which("man"), reason="needs man")
def test_man_shows_it_without_warnings() -> None:
    command = ["man", "--warnings", "-l", str(FOLDER / "edgeapp.1")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not shown.stderr
    assert "edgeapp transcribe [OPTIONS]" in shown.stdout
    assert "EDGEAPP_COMPUTE_TYPE" in shown.stdout
