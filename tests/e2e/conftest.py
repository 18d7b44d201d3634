"""The real command in a process of its own, on the bundled models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Edgeapp = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nobody's settings, nobody's models, no network."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("EDGEAPP_", "HF_"))}
    return clean | {
        "EDGEAPP_CONFIG": str(tmp_path / "no-config.toml"),
        "HF_HUB_CACHE": str(tmp_path / "no-models"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }


@pytest.fixture
def edgeapp(tmp_path: Path, environment: dict[str, str]) -> Edgeapp:
    def run(*arguments: object, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "edgeapp", *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environment,
            timeout=120,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    return run
