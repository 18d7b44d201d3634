"""The worker process of a library, as seen from the measuring process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.comparison.shapes import Shape

__all__ = ["PeerMissing", "PeerFailed", "PeerProcess"]


class PeerFailed(Exception):
    """A library could not run a task; the message says why."""


class PeerMissing(PeerFailed):
    """The package of a library is not installed."""


class PeerProcess:
    """Runs `worker` in one role for one shape. A context manager.

    Args:
        role: "prepare", "race" or "peak".
        shape: The model.
        folder: Folder with its weights.
        device: "cpu" or "cuda".
        *place: For "race" the module:class of the backend; for "peak" a module to import before,
            then the module:class.

    Raises:
        PeerFailed: The worker could not start.
    """

    def __init__(self, role: str, shape: Shape, folder: Path, device: str, *place: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.comparison.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            self.ask("open", role, asdict(shape), str(folder), device, *place)
        except BaseException:
            self.close()
            raise

    def ask(self, call: str, *arguments: Any) -> Any:
        """Call a method of the worker's object. Raises PeerFailed with its error message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"its process ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise (PeerMissing if answer["missing"] else PeerFailed)(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
